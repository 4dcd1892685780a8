use crate::dialect::array::{ArrayReader, Item};

fn read(chunks: &[&[u8]]) -> Vec<String> {
    let mut reader = ArrayReader::new(4_096);
    let mut items = Vec::new();
    for chunk in chunks {
        reader.push(chunk, |item| {
            items.push(match item {
                Item::Element(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                Item::Oversized(prefix) => format!("oversized {}", String::from_utf8_lossy(prefix)),
                Item::End => "end".into(),
            });
        });
    }
    items
}

fn read_all_ways(stream: &[u8]) -> Vec<String> {
    let whole = read(&[stream]);
    for at in 0..=stream.len() {
        let (head, tail) = stream.split_at(at);
        assert_eq!(read(&[head, tail]), whole, "cut at {at}");
    }
    assert_eq!(read(&stream.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
    whole
}

#[test]
fn elements_come_one_by_one_and_the_bracket_last() {
    assert_eq!(
        read_all_ways(
            "[{\"a\":[1,{}]}\n,\r\n{\"b\":\"]}\\\"\\\\\"} , {\"\u{fc}\":1}\n]\n".as_bytes()
        ),
        ["{\"a\":[1,{}]}", "{\"b\":\"]}\\\"\\\\\"}", "{\"\u{fc}\":1}", "end"]
    );
    assert_eq!(read_all_ways(b" \xEF\xBB\xBF [ ] {}"), ["end"], "what follows is not read");
}

#[test]
fn an_array_that_is_not_closed_has_no_end() {
    assert_eq!(read_all_ways(b"[{\"a\":1}\n,\r\n{\"b\": ["), ["{\"a\":1}"]);
    assert_eq!(read_all_ways(b""), [""; 0]);
}

#[test]
fn an_object_alone_is_its_own_end() {
    assert_eq!(read_all_ways(b"\n{\"error\":{}}\n]"), ["{\"error\":{}}", "end"]);
}

#[test]
fn what_is_no_array_of_objects_is_not_read() {
    for text in ["<html>", "[1,2]", "[\"a\"]", "null", "{\"a\":1"] {
        assert_eq!(read_all_ways(text.as_bytes()), [""; 0], "{text}");
    }
    assert_eq!(read_all_ways(b"[{} x {}]"), ["{}"]);
}

#[test]
fn an_element_at_the_bound_is_read_and_one_past_it_is_not() {
    let array = |length: usize| format!("[{{\"a\":\"{}\"}},{{}}]", "x".repeat(length - 8));
    let pieces = |text: &str| read(&text.as_bytes().chunks(613).collect::<Vec<_>>());
    for read in
        [&|text: &str| read(&[text.as_bytes()]), &pieces] as [&dyn Fn(&str) -> Vec<String>; 2]
    {
        assert_eq!(read(&array(4_096))[0].len(), 4_096);
        for length in [4_097, 5_000, 10_000] {
            let items = read(&array(length));
            assert_eq!(items[0], format!("oversized {{\"a\":\"{}", "x".repeat(1_018)), "{length}");
            assert_eq!(items[1..], ["{}", "end"]);
        }
    }
}
