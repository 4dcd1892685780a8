use crate::dialect::scan::{Scan, text_in_prefix};

#[test]
fn a_scan_ends_with_its_value() {
    for (text, length) in [
        ("{}x", Some(2)),
        (r#"{"a":"}"}{"#, Some(9)),
        (r#"["\"]",[{}]] "#, Some(12)),
        (r#"{"\\":1}"#, Some(8)),
        (r#"{"a":{}"#, None),
        (r#"{"a"#, None),
    ] {
        assert_eq!(Scan::default().feed(text.as_bytes()), length, "{text}");
        for at in 0..text.len() {
            let mut scan = Scan::default();
            let (head, tail) = text.as_bytes().split_at(at);
            let found = scan.feed(head).or_else(|| scan.feed(tail).map(|rest| at + rest));
            assert_eq!(found, length, "{text} cut at {at}");
        }
    }
}

#[test]
fn only_a_top_level_key_has_its_text() {
    for (prefix, found) in [
        (r#"{"type":"a","x":"#, Some("a")),
        (r#" { "x" : {"type":"b"} , "type" : "c" "#, Some("c")),
        (r#"{"x":"type","type":"d"}"#, Some("d")),
        (r#"{"x":"\"type\":","type":"e"}"#, Some("e")),
        (r#"{"type":1,"x":"f"}"#, None),
        (r#"{"type":{"x":"g"}}"#, None),
        (r#"[{"type":"h"}]"#, None),
        (r#"{"type":"i"#, None),
        (r#"{"type"#, None),
        (r#"{"a\"#, None),
        ("", None),
    ] {
        assert_eq!(text_in_prefix(prefix.as_bytes(), "type"), found, "{prefix}");
    }
}
