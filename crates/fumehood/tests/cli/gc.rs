//! `fumehood gc`

use crate::House;

#[test]
fn a_clean_house_has_nothing_to_remove() {
    let house = House::new();
    house.run(&["gc"]).is(0, "0 things removed, 0 stay, 0 runs live\n", "");
    let json = house.run(&["gc", "--json"]).json();
    assert_eq!((json["removed"].as_array().unwrap().len(), json["live"].as_u64()), (0, Some(0)));
}

#[test]
fn what_is_not_ours_stays_and_is_told() {
    let house = House::new();
    assert_eq!(house.run(&["gc"]).code, 0);
    std::fs::write(house.state().join("runs/no\u{1b}tes.txt"), "").unwrap();
    let said = house.run(&["gc"]);
    assert_eq!((said.code, said.err.as_str()), (1, ""));
    assert!(said.out.contains(r"no\u{1b}tes.txt: it is no journal of ours"), "{}", said.out);
    assert!(!said.out.contains('\u{1b}'));
}
