use crate::dialect::deep;
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

#[test]
fn what_is_nested_too_deeply_is_left_out_and_no_more() {
    let nest =
        |levels: usize, inner: &str| format!("{}{inner}{}", "[".repeat(levels), "]".repeat(levels));
    let read = |text: &str| deep::parse(text.as_bytes(), |value| value.raw().to_vec()).ok();
    let within = nest(128, r#""]\"""#);
    assert_eq!(read(&within).unwrap(), within.as_bytes());
    for inner in ["1", r#""]\"[""#, "{}"] {
        let text = format!(r#"{{"a":[{},"]\"",{{}}],"b":2}}"#, nest(200, inner));
        let kept = format!(r#"{{"a":[{},"]\"",{{}}],"b":2}}"#, nest(62, "[0]"));
        assert_eq!(String::from_utf8(read(&text).unwrap()).unwrap(), kept);
        for cut in 0..text.len() {
            assert_eq!(read(&text[..cut]), None, "cut at {cut}");
        }
    }
    assert_eq!(read(&format!("{}x", nest(200, "1"))), None);
    let wide = nest(63, &vec!["[[]]"; 1 << 16].join(","));
    assert!(read(&format!("[{wide},{}]", nest(200, ""))).unwrap().len() <= wide.len() + 400);
    let empty = nest(63, &vec!["{}"; 1 << 16].join(","));
    assert_eq!(read(&format!("[{empty},{}]", nest(200, ""))).unwrap().len(), empty.len() + 132);
}
