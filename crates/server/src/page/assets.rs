//! The files of the page. They are served as they lie in `resources/page`: nothing builds them.

/// A file.
#[derive(Debug)]
pub(super) struct Asset {
    path: &'static str,
    pub(super) kind: &'static str,
    pub(super) bytes: &'static [u8],
    /// It is kept and sent as gzip.
    pub(super) packed: bool,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

const SVG: &str = "image/svg+xml";

macro_rules! asset {
    ($path:literal, $file:literal, $kind:expr, $packed:literal) => {
        Asset {
            path: $path,
            kind: $kind,
            bytes: include_bytes!(concat!("../../../../resources/page/", $file)),
            packed: $packed,
        }
    };
}

/// All of them: those in the folder, and no other.
const ASSETS: &[Asset] = &[
    asset!("/", "index.html", HTML, false),
    asset!("/page/page.css", "page.css", CSS, false),
    asset!("/page/icon.svg", "icon.svg", SVG, false),
    asset!("/page/activity.js", "activity.js", SCRIPT, false),
    asset!("/page/api.js", "api.js", SCRIPT, false),
    asset!("/page/app.js", "app.js", SCRIPT, false),
    asset!("/page/approvals.js", "approvals.js", SCRIPT, false),
    asset!("/page/changes.js", "changes.js", SCRIPT, false),
    asset!("/page/chart.js", "chart.js", SCRIPT, false),
    asset!("/page/code.js", "code.js", SCRIPT, false),
    asset!("/page/create.js", "create.js", SCRIPT, false),
    asset!("/page/dom.js", "dom.js", SCRIPT, false),
    asset!("/page/files.js", "files.js", SCRIPT, false),
    asset!("/page/plan.js", "plan.js", SCRIPT, false),
    asset!("/page/processes.js", "processes.js", SCRIPT, false),
    asset!("/page/sandbox.js", "sandbox.js", SCRIPT, false),
    asset!("/page/sandboxes.js", "sandboxes.js", SCRIPT, false),
    asset!("/page/terminal.js", "terminal.js", SCRIPT, false),
    asset!("/page/usage.js", "usage.js", SCRIPT, false),
    asset!("/page/xterm/LICENSE", "xterm/LICENSE", "text/plain; charset=utf-8", false),
    asset!("/page/xterm/LICENSE-addon-fit", "xterm/LICENSE-addon-fit", "text/plain; charset=utf-8", false),
    asset!("/page/xterm/addon-fit.mjs", "xterm/addon-fit.mjs", SCRIPT, false),
    asset!("/page/xterm/xterm.css", "xterm/xterm.css", CSS, false),
    asset!("/page/xterm/xterm.mjs", "xterm/xterm.mjs.gz", SCRIPT, true),
];

pub(super) fn find(path: &str) -> Option<&'static Asset> {
    ASSETS.iter().find(|asset| asset.path == path)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::path::Path;

    use policy::json::sha256_hex;

    use super::*;

    /// Most bytes of all together: they are part of the program.
    const MAX_BYTES: usize = 400 << 10;

    fn text(asset: &Asset) -> String {
        let mut text = String::new();
        if asset.packed {
            flate2::read::GzDecoder::new(asset.bytes).read_to_string(&mut text).unwrap();
        } else {
            text.push_str(std::str::from_utf8(asset.bytes).unwrap());
        }
        text
    }

    fn files(folder: &Path, name: &str, into: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{name}/{}", entry.file_name().into_string().unwrap());
            if entry.file_type().unwrap().is_dir() {
                files(&entry.path(), &name, into);
            } else {
                into.push(name);
            }
        }
    }

    #[test]
    fn the_table_is_the_folder_and_small() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../resources/page");
        let mut there = Vec::new();
        files(&folder, "/page", &mut there);
        let mut served: Vec<String> = ASSETS
            .iter()
            .map(|asset| match (asset.path, asset.packed) {
                ("/", _) => "/page/index.html".to_owned(),
                (path, true) => format!("{path}.gz"),
                (path, false) => path.to_owned(),
            })
            .collect();
        there.sort_unstable();
        served.sort_unstable();
        assert_eq!(there, served);
        let size: usize = ASSETS.iter().map(|asset| asset.bytes.len()).sum();
        assert!(size < MAX_BYTES, "{size}");
    }

    #[test]
    fn nothing_of_ours_reads_html_or_code_from_text_or_names_another_place() {
        for asset in ASSETS.iter().filter(|asset| !asset.path.starts_with("/page/xterm/")) {
            let text = text(asset);
            for bad in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "srcdoc",
                "DOMParser",
                "createContextualFragment",
                "eval(",
                "new Function",
                "\"javascript:",
                "setHTML",
                "style=",
                "onclick=",
                "onerror=",
                "onload=",
                "<style",
                "https://",
                "//cdn",
            ] {
                assert!(!text.contains(bad), "{}: {bad}", asset.path);
            }
            let elsewhere = text.replace("http://www.w3.org/2000/svg", "");
            assert!(!elsewhere.contains("http://"), "{}", asset.path);
        }
        let index = text(find("/").unwrap());
        assert!(index.matches("<script").count() == index.matches("<script type=\"module\" src=\"/page/").count());
    }

    #[test]
    fn xterm_is_what_its_release_holds() {
        // `lib/xterm.mjs` of @xterm/xterm 6.0.0 and `lib/addon-fit.mjs` of @xterm/addon-fit 0.11.0, without the line that names
        // a map of the source.
        for (path, digest) in [
            ("/page/xterm/xterm.mjs", "3fd3d0046d2604ea5860235e2f96625a2fab158dcf3d4cfb0f7c1655559a5d9a"),
            ("/page/xterm/addon-fit.mjs", "aa22c5f28e4d64118ac0e7d60276b3384188e59dd104c96e43760d6e2cedd771"),
            ("/page/xterm/xterm.css", "854a7c0fb70e8b1a083c16797ab827299fb18744f5ad34f227b48337e33293c6"),
        ] {
            assert_eq!(sha256_hex(text(find(path).unwrap()).as_bytes()), digest, "{path}");
        }
    }
}
