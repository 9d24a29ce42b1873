//! One e-mail address: `local@domain`, dot-atom and IDNA, nothing else that a header could carry.
//!
//! Libraries disagree on comments, quoted local parts, groups, display names and encoded words, and mailers act on a leading
//! `|` or `-`. All of these are legal somewhere and needed nowhere: they are refused by shape. What passes is the local
//! part as it was given and the domain in its ASCII form.

use policy::diagnostic::quote;
use policy::guards::EmailGuard;
use serde_json::Value as Json;

use super::{Flaws, Passed, text};
use crate::blocked::Blocked;

const ID: &str = "tools.guard/email";
/// RFC 5321, 4.5.3.1.
const MAX_LOCAL: usize = 64;
const MAX_ADDRESS: usize = 254;
/// What RFC 5322 calls `atext`, without what mailers, shells and gateways act on: `%` and `!` are routes, `|` is a pipe.
const ATEXT: &str = "#$&'*+-/=?^_`{}~";

/// `kind = "email"`
#[derive(Debug)]
pub(crate) struct EmailJudge {
    /// ASCII, lower case.
    domains: Vec<String>,
    subdomains: bool,
}

impl EmailJudge {
    pub(crate) fn new(guard: &EmailGuard, flaws: &mut Flaws<'_>) -> Option<Self> {
        let mut domains = Vec::new();
        for domain in &guard.domains {
            match ascii_domain(&domain.value) {
                Ok(name) => domains.push(name),
                Err(why) => {
                    let what = format!("{} is not a domain", quote(&domain.value));
                    flaws.note(domain.at, "value/domain", what, why, "write company.com");
                }
            }
        }
        (domains.len() == guard.domains.len()).then_some(Self { domains, subdomains: guard.subdomains })
    }

    pub(crate) fn pass(&self, value: &Json) -> Result<Passed, Blocked> {
        let given = text(value, ID, "one address")?;
        let (local, domain) = parse(given).map_err(|why| self.blocked(given, &why))?;
        let domain = ascii_domain(domain).map_err(|why| self.blocked(given, why))?;
        if !self.domains.is_empty() && !self.domains.iter().any(|known| self.covers(known, &domain)) {
            return Err(self.blocked(given, &format!("its domain is {}, which is not allowed", quote(&domain))));
        }
        let address = format!("{local}@{domain}");
        if address.len() > MAX_ADDRESS {
            return Err(self.blocked(given, "addresses end at 254 characters"));
        }
        Ok(Json::String(address))
    }

    /// By whole labels: `evil-company.com` and `company.com.evil` are others.
    fn covers(&self, known: &str, domain: &str) -> bool {
        let below = || domain.strip_suffix(known).is_some_and(|rest| rest.ends_with('.'));
        known == domain || (self.subdomains && below())
    }

    fn blocked(&self, given: &str, why: &str) -> Blocked {
        let below = if self.subdomains { " or below" } else { "" };
        let instead = match self.domains.as_slice() {
            [] => "one plain address, name@company.com".to_owned(),
            domains => {
                let names: Vec<String> = domains.iter().map(|domain| quote(domain)).collect();
                format!("one plain address at {}{below}", names.join(" or "))
            }
        };
        Blocked::new(ID, format!("{} does not pass as an address", quote(given)), why, instead)
    }
}

/// The two parts, each still as given.
fn parse(given: &str) -> Result<(&str, &str), String> {
    let said = |why: &str| Err(why.to_owned());
    if let Some(odd) = given.chars().find(|c| c.is_control() || c.is_whitespace()) {
        return said(if odd == '\r' || odd == '\n' {
            "a line break would start another header"
        } else {
            "it has a blank or a control character"
        });
    }
    if given.len() > MAX_ADDRESS {
        return said("addresses end at 254 characters");
    }
    let Some((local, domain)) = given.split_once('@') else { return said("it has no `@`") };
    if domain.contains('@') {
        return said("it has more than one `@`, and programs disagree on which one counts");
    }
    if local.is_empty() || local.len() > MAX_LOCAL {
        return said("the part before `@` has 1 to 64 characters");
    }
    if let Some(odd) = local.chars().find(|c| !(c.is_ascii_alphanumeric() || *c == '.' || ATEXT.contains(*c))) {
        return Err(match odd {
            '"' => "quoted names are read differently by different programs".to_owned(),
            '(' | ')' => "comments are read differently by different programs".to_owned(),
            '<' | '>' => "a display name is not part of an address".to_owned(),
            ',' | ';' | ':' => "there must be one address".to_owned(),
            '%' | '!' => "`%` and `!` are routes to another host".to_owned(),
            odd => format!("{} does not stand in a plain address", quote(&odd.to_string())),
        });
    }
    if local.starts_with('.') || local.ends_with('.') || local.contains("..") {
        return said("dots stand between characters");
    }
    if local.starts_with(['-', '/']) {
        return said("mail programs take a leading `-` as an option and a leading `/` as a file");
    }
    if local.contains("=?") || local.contains("?=") {
        return said("it has the form of an encoded word, which decodes to something else");
    }
    Ok((local, domain))
}

/// A domain by IDNA, as it goes over the wire.
fn ascii_domain(domain: &str) -> Result<String, &'static str> {
    if domain.ends_with('.') {
        return Err("a dot at the end makes another name for some programs");
    }
    if domain.starts_with('[') {
        return Err("an address literal is not a domain");
    }
    let ascii = super::url::ascii_name(domain)?;
    if !ascii.contains('.') {
        return Err("a domain has a dot");
    }
    if ascii.rsplit('.').next().is_some_and(|last| last.chars().all(|c| c.is_ascii_digit())) {
        return Err("an address of numbers is not a domain");
    }
    Ok(ascii)
}
