//! `fumehood attack`: what is said, and with which exit code, where rows are named one by one.

use super::House;

#[test]
fn rows_that_nothing_promises_are_told_as_such_and_are_no_failure() {
    let house = House::new();
    // The preset has a network of its own with `lo` alone, in which routes may be asked for.
    let open = house.run(&["attack", "-p", "python", "--only", "NET-08"]);
    assert_eq!(open.code, 0, "{open:?}");
    assert!(open.out.contains("NET-08  not promised"), "{open:?}");
    assert!(open.err.contains("not promised: the chosen rows are not promised here"), "{open:?}");
    // The same row where it is promised.
    let closed = house.run(&["attack", "-p", "strict", "--only", "NET-08"]);
    assert_eq!(closed.code, 0, "{closed:?}");
    assert_eq!(closed.err, "");
}
