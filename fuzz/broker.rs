//! What programs send to the broker, and what the broker and the engine say to each other.

pub(crate) mod dns {
    //! Questions from inside, and answers of resolvers outside.
    use egress::dns::{self, Answer, LookupResult, NoQuestion};

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        let mut seeds = Vec::new();
        for (name, kind) in [("a.example", dns::A), ("b.c.example", dns::AAAA), ("1.1.18.198.in-addr.arpa", dns::PTR)] {
            let asked = dns::ask(7, name, kind);
            let question = dns::question(&asked).unwrap();
            let addresses = ["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
            for answer in [Answer::Addresses(&addresses), Answer::Pointer("a.example"), Answer::Denied("no rule")] {
                seeds.push(dns::answer(&question, &answer, 1232));
            }
            seeds.push(asked);
        }
        seeds
    }

    pub(crate) fn read(bytes: &[u8]) {
        match dns::question(bytes) {
            Ok(question) => {
                assert!(question.name.as_deref().is_none_or(|name| egress::host::plain(name).as_deref() == Some(name)));
                for answer in [Answer::Nothing, Answer::NoName, Answer::Denied("why"), Answer::Pointer("a.example")] {
                    let said = dns::answer(&question, &answer, question.udp);
                    assert!(said.len() <= question.udp && said[..2] == bytes[..2] && said[2] & 0x80 != 0);
                    // Our own answers are no questions: two brokers could not talk for ever.
                    assert_eq!(dns::question(&said), Err(NoQuestion::Silence));
                }
            }
            Err(NoQuestion::Answer(said)) => assert!(said.len() == 12 && said[2] & 0x80 != 0),
            Err(NoQuestion::Silence) => {}
        }
        for kind in [dns::A, dns::AAAA] {
            if let Some(LookupResult::Addresses(addresses, _)) = dns::found(&dns::ask(7, "a.example", kind), bytes) {
                assert!(addresses.len() <= 32 && addresses.iter().all(|a| a.is_ipv4() == (kind == dns::A)));
            }
        }
    }
}

pub(crate) mod hello {
    //! First bytes of TLS.
    use egress::hello::{First, MAX_HELLO, first};

    pub(crate) const TOKENS: &[&str] = &["\u{16}\u{3}\u{1}", "\0\0", "example.org", "\u{2}h2", "\u{0}\u{10}"];

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        let sized = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat();
        let name = sized(&sized(&[&[0][..], &sized(b"example.org")].concat()));
        let extensions =
            sized(&[&[0, 0][..], &name, &[0, 16], &sized(&sized(b"\x02h2")), &[0xFE, 0x0D, 0, 0]].concat());
        let body = [&[3; 34][..], &[0, 0, 2, 0x13, 1, 1, 0], &extensions].concat();
        let message = [&[1, 0][..], &sized(&body)].concat();
        let (one, two) = message.split_at(20);
        let record = |bytes: &[u8]| [&[22, 3, 1][..], &sized(bytes)].concat();
        vec![record(&message), [record(one), record(two)].concat(), b"GET / HTTP/1.1\r\n".to_vec()]
    }

    pub(crate) fn read(bytes: &[u8]) {
        match first(bytes) {
            First::Hello(hello) => {
                assert!(hello.name.as_deref().is_none_or(|name| egress::host::plain(name).as_deref() == Some(name)));
                // What follows a hello does not change it.
                assert_eq!(first(&[bytes, b"more"].concat()), First::Hello(hello));
            }
            First::More => assert!(bytes.len() < MAX_HELLO),
            First::NotTls => assert_ne!(bytes[0], 22),
            First::Malformed(why) => assert!(!why.is_empty()),
        }
    }
}

pub(crate) mod framing {
    //! Requests of HTTP/1, whole and in pieces; a forgiving reader finds no request that the strict one did not.
    use egress::http::framing::Framing;

    pub(crate) const TOKENS: &[&str] = &[
        "GET / HTTP/1.1\r\n",
        "Host: a.example\r\n",
        "Content-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n\r\n",
        "0\r\n\r\n",
        "3\r\nabc\r\n",
        "\r",
        "\n",
        " ",
        "\t",
        ",",
        ";",
    ];

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n",
        ]
        .map(|text| text.as_bytes().to_vec())
        .to_vec()
    }

    pub(crate) fn read(bytes: &[u8]) {
        let mut whole = Framing::default();
        let verdict = whole.feed(bytes);
        let mut slow = Framing::default();
        let slowly = bytes.iter().try_for_each(|byte| slow.feed(std::slice::from_ref(byte)));
        assert_eq!(verdict.is_ok(), slowly.is_ok(), "pieces change the verdict: {verdict:?} {slowly:?}");
        if verdict.is_ok() {
            assert_eq!(whole.is_between(), slow.is_between());
            let text = String::from_utf8_lossy(bytes).to_ascii_lowercase();
            let head = text.split("\r\n\r\n").next().unwrap_or_default();
            let complete = text.contains("\r\n\r\n");
            let has = |name: &str| head.lines().skip(1).any(|line| line.starts_with(name));
            assert!(!(complete && has("content-length:") && has("transfer-encoding:")), "two lengths");
        }
    }
}

pub(crate) mod texts {
    //! Paths, names and authorities.
    use egress::{host, http::path, pattern};

    pub(crate) const TOKENS: &[&str] =
        &["/", "%2e", "%2F", "..", "%25", ";", "\\", "**", "*", "a.example", ":443", "[::1]", "@"];

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        ["/simple/%78/y", "/a/../b", "a.example:443", "[2001:db8::1]:80", "127.1", "A.Example."]
            .map(|text| text.as_bytes().to_vec())
            .to_vec()
    }

    pub(crate) fn read(bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        if let Ok(read) = path::plain(&text) {
            assert!(read.starts_with('/') && !read.contains("//") && !read.split('/').any(|s| s == ".." || s == "."));
            assert!(!read.contains(['%', '\\', ';', '\0', '\r', '\n']), "{read:?}");
            assert!(pattern::path("/**", &read));
        }
        if let Ok(path::Read { decoded, kept }) = path::read(&text) {
            assert_eq!(path::plain(&decoded).as_ref(), Ok(&decoded));
            assert!(kept.is_none_or(|kept| kept.replace("%2F", "/") == decoded && pattern::path("/**", &kept)));
        }
        if let Some(name) = host::plain(&text) {
            assert_eq!(host::plain(&name).as_ref(), Some(&name));
            assert!(name.parse::<std::net::IpAddr>().is_err() && !name.contains(['/', ':', '@', '%']));
        }
        if let Some(authority) = host::authority(&text) {
            assert!(authority.port != Some(0) && !text.contains(['@', '/', '#', '?']), "{authority:?}");
        }
    }
}

pub(crate) mod frames {
    //! Frames between engine and broker, both ways.
    use egress::wire::{self, FromBroker, MAX_TEXT, ToBroker};

    pub(crate) const TOKENS: &[&str] =
        &["{\"frame\":\"", "\"denied\"", "\"orders\"", "\"net\":{", "\"sockets\":[", "\"kind\":\"spare-tcp4\"", "null"];

    pub(crate) fn seeds() -> Vec<Vec<u8>> {
        let ask = FromBroker::Ask { id: 1, host: "a.example".to_owned(), port: 443, request: None };
        let rules = ToBroker::Rules { net: serde_json::json!({"mode": "allow", "allow": [{"host": "a.example"}]}) };
        vec![wire::encode(&ask).unwrap(), wire::encode(&rules).unwrap(), wire::encode(&ToBroker::End {}).unwrap()]
    }

    pub(crate) fn read(bytes: &[u8]) {
        if let Ok(Some((frame, length))) = wire::decode::<ToBroker>(bytes) {
            assert!(length <= bytes.len());
            if let ToBroker::Rules { net } = &frame
                && let Ok(rules) = egress::judge::Rules::read(net)
            {
                assert_eq!(rules.digest(), wire::digest(net));
            }
        }
        if let Ok(Some((frame, _))) = wire::decode::<FromBroker>(bytes)
            && let FromBroker::Denied(denied) = frame.bounded()
        {
            assert!(denied.what.len() <= MAX_TEXT && denied.why.len() <= MAX_TEXT);
        }
    }
}
