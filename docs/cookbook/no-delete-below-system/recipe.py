"""No deletes below `system`: the path is resolved by the kernel beneath the one folder that is allowed."""

import os
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from held import HERE, denied, passes_naive, shown

from fumehood.tools import Gateway

with tempfile.TemporaryDirectory() as place:
    place = os.path.realpath(place)
    # The policy as it is, for a place of this recipe's own.
    policy = pathlib.Path(place, "policy.toml")
    policy.write_text((HERE / "policy.toml").read_text().replace("/srv/data", f"{place}/data"))
    for name in ("data/old.csv", "data/sub/older.csv", "system/passwd", "system-notes"):
        path = pathlib.Path(place, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    os.symlink("../system", f"{place}/data/link")
    os.symlink("../system", f"{place}/data/deep")  # `deep/..` is `system/..` for the kernel, and `data` for text

    def naive(path: str) -> bool:
        """As guides have it: cleaned as text, then compared as text."""
        return not os.path.normpath(path).startswith(f"{place}/system/")

    LINK = f"{place}/data/link/passwd"
    BEHIND = f"{place}/data/deep/../system/passwd"
    passes_naive("a link below the allowed folder", naive(LINK) and os.path.exists(LINK))
    passes_naive("`..` behind a link, which text cleans away", naive(BEHIND) and os.path.exists(BEHIND))

    with Gateway(policy) as gate:

        @gate.tool(effect="write")
        def delete_file(path: str) -> str:
            os.unlink(path)
            return "deleted"

        shown("a file of `data` is deleted", delete_file(f"{place}/data/old.csv") == "deleted")
        shown("and one below it", delete_file(f"{place}/data/sub/older.csv") == "deleted")
        attacks = [LINK, BEHIND, f"{place}/system/passwd", f"{place}/data/../system/passwd", f"{place}//system/passwd",
                   f"{place}/data/./link/./passwd", "/etc/passwd", f"{place}/data/%2e%2e/system/passwd", f"{place}/data\x00/../system/passwd",
                   f"/proc/self/cwd/{place}/system/passwd", "~/x", "\\\\host\\share"]
        for path in attacks:
            denied(repr(path.replace(place, "")), lambda path=path: delete_file(path))
    shown("`system` is whole", pathlib.Path(place, "system/passwd").read_text() == "system/passwd")
