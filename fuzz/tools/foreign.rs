//! Parsers of others alone, as often as there is time for: in the product a panic of one ends the gateway.
//!
//! The other targets say what must hold of an answer and so are slow; here only that there is one counts. What reaches each
//! parser has passed our own bounds first, as in the product.

pub(crate) mod schemas {
    //! A tool's own schema, which is a server's word, and arguments for it.

    use gate::schema::{Author, Schema};
    use serde_json::{Map, Value as Json, json};

    const KEYWORDS: &[&str] = &[
        "type",
        "properties",
        "patternProperties",
        "additionalProperties",
        "items",
        "prefixItems",
        "contains",
        "minContains",
        "maxContains",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "if",
        "then",
        "else",
        "$ref",
        "$defs",
        "$anchor",
        "$dynamicRef",
        "$dynamicAnchor",
        "$id",
        "$schema",
        "enum",
        "const",
        "multipleOf",
        "minimum",
        "exclusiveMaximum",
        "minLength",
        "maxLength",
        "pattern",
        "format",
        "required",
        "dependentRequired",
        "dependentSchemas",
        "propertyNames",
        "unevaluatedProperties",
        "unevaluatedItems",
        "uniqueItems",
        "minItems",
        "maxProperties",
        "definitions",
        "default",
        "contentEncoding",
        "nullable",
        "id",
        "dependencies",
        "additionalItems",
        "exclusiveMinimum",
        "maximum",
    ];
    const WORDS: &[&str] = &[
        "object",
        "array",
        "string",
        "integer",
        "null",
        "a",
        "b",
        "",
        "#",
        "#/",
        "#/$defs/a",
        "#/properties/a",
        "#a",
        "~0~1",
        "^a+$",
        "(",
        "\\p{L}",
        "\\d{1000}",
        "(?=a)",
        "[^]",
        "\\u{1F600}",
        "\\cA",
        "^(a|b)*$",
        "\\w\\b",
        "(?<n>a)\\k<n>",
        "date-time",
        "email",
        "uri",
        "regex",
        "duration",
        "idn-hostname",
        "json-pointer",
        "uuid",
        "ipv6",
        "é\u{1F600}\u{0}",
        "1985-04-12T23:20:50.52Z",
        "P1Y",
        "::1",
        "x@[1.2.3.4]",
        "xn--a",
        "http://[::]/%",
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
        "http://a/",
        "base64",
        "-0",
        "1e999999999",
        "99999999999999999999",
    ];
    const NUMBERS: &[f64] = &[0.0, -0.0, 1.0, 0.1, 1e-320, 1e308, -1e308, 2.0, 3.5, 9_007_199_254_740_993.0, 1e19];

    /// Takes bytes for choices; when they are used up everything ends.
    struct Choices<'a>(std::slice::Iter<'a, u8>);

    impl Choices<'_> {
        fn below(&mut self, end: usize) -> usize {
            usize::from(self.0.next().copied().unwrap_or(0)) % end
        }

        fn word(&mut self) -> &'static str {
            WORDS[self.below(WORDS.len())]
        }

        fn value(&mut self, depth: usize) -> Json {
            match self.below(if depth == 0 { 6 } else { 8 }) {
                0 => json!(self.word()),
                1 => json!(NUMBERS[self.below(NUMBERS.len())]),
                2 => json!(i64::try_from(self.below(5)).unwrap() - 1),
                3 => json!([true, false][self.below(2)]),
                4 => Json::Null,
                5 => json!([i64::MAX, i64::MIN][self.below(2)]),
                6 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
                _ => {
                    Json::Object((0..self.below(4)).map(|_| (self.word().to_owned(), self.value(depth - 1))).collect())
                }
            }
        }

        fn schema(&mut self, depth: usize) -> Json {
            if depth == 0 || self.0.len() == 0 {
                return json!(self.below(2) == 0);
            }
            let mut map = Map::new();
            for _ in 0..1 + self.below(5) {
                let keyword = KEYWORDS[self.below(KEYWORDS.len())];
                let value = match self.below(5) {
                    0 => self.value(2),
                    1 => self.schema(depth - 1),
                    2 => (0..1 + self.below(3)).map(|_| self.schema(depth - 1)).collect(),
                    3 => json!(self.word()),
                    _ => Json::Object(
                        (0..self.below(4)).map(|_| (self.word().to_owned(), self.schema(depth - 1))).collect(),
                    ),
                };
                map.insert(keyword.to_owned(), value);
            }
            Json::Object(map)
        }
    }

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        (0..32_u8).map(|seed| (0..96_u8).map(|at| at.wrapping_mul(seed | 1).rotate_left(3) ^ seed).collect()).collect()
    }

    pub(crate) fn read(bytes: &[u8]) {
        let mut choices = Choices(bytes.iter());
        let schema = choices.schema(4);
        for author in [Author::Tool, Author::Policy] {
            let Ok(made) = Schema::new(&schema, author) else { continue };
            for _ in 0..3 {
                let args = choices.value(3);
                assert_eq!(made.check(&args), made.check(&args), "{schema} {args}");
            }
        }
    }
}

pub(crate) mod patterns {
    //! Regular expressions, of schemas and of conditions.

    use gate::rules::{Condition, Counters, EvalContext};
    use gate::schema::{Author, Schema};
    use serde_json::json;

    pub(crate) const TOKENS: &[&str] = &[
        "^",
        "$",
        "(",
        ")",
        "(?:",
        "(?i)",
        "(?-u)",
        "(?x)",
        "(?<a>",
        "(?=",
        "(?!",
        "[",
        "]",
        "[^",
        "[[:alpha:]]",
        "[a-z&&[^b]]",
        "\\p{Greek}",
        "\\P{L}",
        "\\d",
        "\\W",
        "\\b",
        "\\B",
        "\\A",
        "\\z",
        "\\x{10FFFF}",
        "\\u0041",
        "\\cZ",
        "\\1",
        "*",
        "+?",
        "??",
        "{2}",
        "{,3}",
        "{1000}",
        "{2,1}",
        "|",
        ".",
        "\\Q",
        "\\E",
        "#",
        "é",
        "\u{1f600}",
        "\\-",
        "\\/",
        "[\\w-]",
        "[]a]",
    ];

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        [r"^[a-z]+@company\.com$", r"(?i)^(a|b)*c{2,5}$", r"^\p{L}[\w.-]{1,64}$", r"\u00e9\d+[^\s]|x(?:y|z)?", ""]
            .map(|seed| seed.as_bytes().to_vec())
            .to_vec()
    }

    pub(crate) fn read(bytes: &[u8]) {
        let pattern = String::from_utf8_lossy(bytes);
        let values = [json!({"to": pattern}), json!({"to": "ann@company.com\u{e9}\n"}), json!({"to": ""})];
        let schema =
            json!({"type": "object", "properties": {"to": {"pattern": pattern}}, "patternProperties": {&*pattern: {}}});
        for author in [Author::Tool, Author::Policy] {
            let Ok(made) = Schema::new(&schema, author) else { continue };
            for value in &values {
                assert_eq!(made.check(value), made.check(value), "{pattern:?}");
            }
        }
        let Ok(condition) = Condition::compile(&format!("args.to.matches({:?})", pattern.replace('\\', "\\\\")), None)
        else {
            return;
        };
        for args in &values {
            let facts = EvalContext { args, session: "s", agent: "a", counters: Counters::default(), now: 0 };
            assert_eq!(condition.holds(&facts), condition.holds(&facts), "{pattern:?}");
        }
    }
}
