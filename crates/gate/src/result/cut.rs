//! Cutting texts to a number of bytes: head and tail stay, and what is lost in between is counted.

/// Room for the words that say what was cut.
const NOTE: usize = 48;

/// Cuts texts that follow each other to `most` bytes together; answers how many bytes were dropped.
pub(super) fn cut(texts: &mut [&mut String], most: usize) -> usize {
    let whole: usize = texts.iter().map(|text| text.len()).sum();
    if whole <= most {
        return 0;
    }
    let room = most.saturating_sub(NOTE);
    let head = room / 2;
    let tail = whole - (room - head);
    let mut begin = 0;
    let mut kept = 0;
    let mut noted = None;
    for (index, text) in texts.iter_mut().enumerate() {
        let end = begin + text.len();
        let keep_head = text.floor_char_boundary(head.clamp(begin, end) - begin);
        let keep_tail = text.ceil_char_boundary(tail.clamp(begin, end) - begin).max(keep_head);
        if keep_head < keep_tail && noted.is_none() {
            noted = Some((index, keep_head));
        }
        text.replace_range(keep_head..keep_tail, "");
        kept += text.len();
        begin = end;
    }
    let dropped = whole - kept;
    let note = format!("\n[... {dropped} bytes cut ...]\n");
    if let Some((index, at)) = noted
        && kept + note.len() <= most
        && let Some(text) = texts.get_mut(index)
    {
        text.insert_str(at, &note);
    }
    dropped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(texts: &[&str], most: usize) -> (Vec<String>, usize) {
        let mut owned: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let dropped = cut(&mut owned.iter_mut().collect::<Vec<_>>(), most);
        (owned, dropped)
    }

    #[test]
    fn head_and_tail_stay_and_the_loss_is_told() {
        assert_eq!(run(&["abc"], 3), (vec!["abc".to_owned()], 0));
        let long = "x".repeat(1000) + "END";
        let (texts, dropped) = run(&[&("BEGIN".to_owned() + &long)], 200);
        assert!(texts[0].starts_with("BEGIN") && texts[0].ends_with("END") && texts[0].len() <= 200);
        assert!(texts[0].contains(&format!("{dropped} bytes cut")));
        assert_eq!(dropped, 1008 - (texts[0].len() - format!("\n[... {dropped} bytes cut ...]\n").len()));
    }

    #[test]
    fn no_size_is_passed_and_no_letter_is_cut_through() {
        let parts = ["\u{1f600}".repeat(50), "b".repeat(70), String::new(), "\u{e9}".repeat(90)];
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let whole: usize = parts.iter().map(|part| part.len()).sum();
        for most in 0..whole + 2 {
            let (texts, dropped) = run(&parts, most);
            let size: usize = texts.iter().map(String::len).sum();
            assert!(size <= most, "{most}");
            assert_eq!(dropped == 0, most >= whole, "{most}");
        }
    }
}
