//! Little languages inside arguments: sed, awk, jq, formats of git. Each reads only forms that touch nothing but the input.

use std::sync::LazyLock;

use regex::Regex;

/// A script of sed without `e`, `r`, `R`, `w`, `W` and the like, read as GNU sed reads it; false where that is not certain.
pub(super) fn sed(script: &str) -> bool {
    let mut reader = Sed { chars: script.chars().collect(), at: 0 };
    reader.script().is_some()
}

struct Sed {
    chars: Vec<char>,
    at: usize,
}

impl Sed {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at = self.at.saturating_add(1);
        Some(c)
    }

    fn skip(&mut self, test: impl Fn(char) -> bool) -> usize {
        let start = self.at;
        while self.peek().is_some_and(&test) {
            self.at = self.at.saturating_add(1);
        }
        self.at.saturating_sub(start)
    }

    fn script(&mut self) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            self.skip(|c| c.is_ascii_whitespace() || c == ';');
            if self.peek().is_none() {
                return (depth == 0).then_some(());
            }
            self.addresses()?;
            match self.next()? {
                '{' => depth = depth.checked_add(1)?,
                '}' => {
                    depth = depth.checked_sub(1)?;
                    self.end()?;
                }
                '=' | 'd' | 'D' | 'g' | 'G' | 'h' | 'H' | 'n' | 'N' | 'p' | 'P' | 'x' | 'z' => self.end()?,
                'q' | 'Q' | 'l' => {
                    self.skip(|c| c == ' ');
                    self.skip(|c| c.is_ascii_digit());
                    self.end()?;
                }
                'b' | 't' | 'T' => {
                    self.skip(|c| c == ' ');
                    self.skip(|c| c.is_ascii_alphanumeric() || c == '_');
                    self.end()?;
                }
                ':' => {
                    let length = self.skip(|c| c.is_ascii_alphanumeric() || c == '_');
                    if length == 0 {
                        return None;
                    }
                    self.end()?;
                }
                's' => self.substitute()?,
                'y' => {
                    let mark = self.mark()?;
                    self.part(mark, false)?;
                    self.part(mark, false)?;
                    self.end()?;
                }
                _ => return None,
            }
        }
    }

    /// What may follow a command.
    fn end(&mut self) -> Option<()> {
        self.skip(|c| c == ' ' || c == '\t');
        match self.peek() {
            None | Some(';' | '\n' | '}') => Some(()),
            Some(_) => None,
        }
    }

    fn addresses(&mut self) -> Option<()> {
        if self.address()? {
            self.skip(|c| c == ' ');
            if self.peek() == Some(',') {
                self.next()?;
                self.skip(|c| c == ' ');
                if matches!(self.peek(), Some('+' | '~')) {
                    self.next()?;
                    (self.skip(|c| c.is_ascii_digit()) > 0).then_some(())?;
                } else {
                    self.address()?.then_some(())?;
                }
            }
        }
        self.skip(|c| c == ' ' || c == '!');
        Some(())
    }

    /// One address; false if there is none.
    fn address(&mut self) -> Option<bool> {
        match self.peek() {
            Some('$') => {
                self.next()?;
            }
            Some('0'..='9') => {
                self.skip(|c| c.is_ascii_digit());
                if self.peek() == Some('~') {
                    self.next()?;
                    (self.skip(|c| c.is_ascii_digit()) > 0).then_some(())?;
                }
            }
            Some('/') => {
                self.next()?;
                self.part('/', true)?;
                self.skip(|c| matches!(c, 'I' | 'M'));
            }
            Some(_) | None => return Some(false),
        }
        Some(true)
    }

    /// The character that divides the parts of `s` and `y`.
    fn mark(&mut self) -> Option<char> {
        self.next().filter(|c| !c.is_ascii_alphanumeric() && !c.is_ascii_whitespace() && *c != '\\' && *c != ';')
    }

    /// Up to the next mark that is not escaped. A bracket must be closed before it: whether one inside brackets divides, is
    /// told differently.
    fn part(&mut self, mark: char, pattern: bool) -> Option<()> {
        let mut open = false;
        loop {
            match self.next()? {
                '\\' => {
                    self.next()?;
                }
                c if c == mark => return (!open).then_some(()),
                '[' if pattern => open = true,
                ']' => open = false,
                '\n' if pattern => return None,
                _ => {}
            }
        }
    }

    fn substitute(&mut self) -> Option<()> {
        let mark = self.mark()?;
        self.part(mark, true)?;
        self.part(mark, false)?;
        self.skip(|c| matches!(c, 'g' | 'p' | 'i' | 'I' | 'M' | 'm') || c.is_ascii_digit());
        self.end()
    }
}

/// `/pattern/ { print $1, NR }` and the like: no call, no pipe, no redirection, no `getline`.
static AWK: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let item = r#"(?:\$?(?:[0-9]+|NF|NR)|"[^"\\]*")"#;
    let test = r#"(?:/[^/\\\n]*/|(?:NR|NF|\$[0-9]+)\s*(?:==|!=|<=|>=|<|>)\s*(?:[0-9]+|"[^"\\]*")|\$[0-9]+\s*!?~\s*/[^/\\\n]*/)"#;
    let block = format!(r"\{{\s*print(?:\s+{item}(?:\s*,?\s*{item})*)?\s*;?\s*\}}");
    Regex::new(&format!(r"\A\s*(?:{test}|{block}|{test}\s*{block})\s*\z")).ok()
});

pub(super) fn awk(program: &str) -> bool {
    AWK.as_ref().is_some_and(|pattern| pattern.is_match(program))
}

/// Names by which jq reads anything but its input.
static JQ: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?i)\b(?:import|include|env|input_filename|get_search_list|modulemeta|input_line_number)\b|\$(?:ENV|__)",
    )
    .ok()
});

pub(super) fn jq(program: &str) -> bool {
    JQ.as_ref().is_some_and(|pattern| !pattern.is_match(program))
}

/// `%G?` and its like run the program that checks signatures; so does the atom of `for-each-ref`.
static SIGNATURE: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"%[-+ ]*G|signature").ok());

pub(super) fn git_format(format: &str) -> bool {
    SIGNATURE.as_ref().is_some_and(|pattern| !pattern.is_match(format))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_of_sed_that_touch_only_their_input_pass() {
        for script in [
            "s/a/b/",
            "s/a/b/g;s|x|y|2p",
            "1,10p",
            "$d",
            "/x/,/y/d",
            "/a/I{s/x/y/;p}",
            "2~3p",
            "1,+4p",
            "1!G;h;$!d",
            ":a;N;$!ba;s/\\n/ /g",
            "y/abc/xyz/",
            "s/[0-9][0-9]*/N/",
            "=",
            "10q",
            "s/a\\/b/c/",
            "5,8p;8q",
            "s,/[a-z]*$,,",
        ] {
            assert!(sed(script), "{script}");
        }
    }

    #[test]
    fn scripts_of_sed_that_read_write_or_run_are_refused() {
        for script in [
            "1e id",
            "e",
            "s/a/id/e",
            "s/a/b/ge",
            "w out",
            "s/a/b/w out",
            "r /etc/passwd",
            "R x",
            "W x",
            "1{e id\n}",
            "s/[/]/x/e",
            "s/a/b/;w x",
            "s/a/b/\nw x",
            "$!{w x\n}",
            "/x/w x",
            "1,2w x",
            "s/a/b",
            "sxaxbxe",
            "F",
            "a text",
            "\\,x,w f",
            "}",
            "{p",
            "s/a/b/ e",
            "s/a/b/ w x",
            "v 4",
            "y/a/b/w x",
            "s/[/w x/;]/b/",
        ] {
            assert!(!sed(script), "{script}");
        }
    }

    #[test]
    fn programs_of_awk_print_and_do_nothing_else() {
        for program in [
            "{print $1}",
            "{ print $1, $3 }",
            "/x/ {print $NF}",
            "NR > 1 { print }",
            "$3 == \"a\" {print $1 \" \" $2}",
            "/x/",
            "NR==1",
        ] {
            assert!(awk(program), "{program}");
        }
        for program in [
            "BEGIN{system(\"id\")}",
            "{print | \"sh\"}",
            "{print > \"x\"}",
            "{\"id\" | getline}",
            "{print $1 > $2}",
            "@load \"x\"",
            "{print ENVIRON[\"X\"]}",
            "{printf \"%s\", $1}",
            "BEGIN { while ((getline l < \"/etc/passwd\") > 0) print l }",
            "",
        ] {
            assert!(!awk(program), "{program}");
        }
    }

    #[test]
    fn filters_of_jq_read_their_input_alone() {
        assert!(jq(".a[] | select(.b > 1) | {c: .d}"));
        for program in ["env", "$ENV.HOME", "input_filename", "import \"x\" as x; .", "include \"x\"; .", "$__loc__"] {
            assert!(!jq(program), "{program}");
        }
    }

    #[test]
    fn a_format_that_checks_signatures_is_no_format() {
        assert!(git_format("%h %s (%an)"));
        for format in ["%G?", "%+GS", "% G?", "%(signature)", "%h %-GK"] {
            assert!(!git_format(format), "{format}");
        }
    }
}
