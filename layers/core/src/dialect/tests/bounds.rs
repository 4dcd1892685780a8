//! Nothing that a provider sends makes the readers hold more than their bound, or take more than
//! linear time. Times are not measured; what would be quadratic here would not end.

use crate::dialect::array::ArrayReader;
use crate::dialect::sse::SseReader;

const MAX: usize = 16 * 1_024;

fn push_all<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> (usize, SseReader) {
    let mut reader = SseReader::new(MAX);
    let mut events = 0;
    for chunk in chunks {
        reader.push(chunk, |_| events += 1);
        assert!(reader.capacity() <= 2 * MAX + 64, "{}", reader.capacity());
    }
    (events, reader)
}

#[test]
fn one_line_of_4_mib() {
    let line = vec![b'x'; 4 << 20];
    for head in [&b"data: "[..], b"", b":", b"event: ", b"error: ", b"{", b"  "] {
        let mut stream = head.to_vec();
        stream.extend_from_slice(&line);
        stream.extend_from_slice(b"\n\ndata: 1\n\n");
        let (whole, _) = push_all([&stream[..]]);
        let (pieces, _) = push_all(stream.chunks(1_000));
        assert_eq!(whole, pieces, "{:?}", String::from_utf8_lossy(head));
        assert!((1..=2).contains(&whole));
    }
}

#[test]
fn an_event_of_100_000_lines() {
    let stream = format!("{}\ndata: 1\n\n", "data: {}\n".repeat(100_000));
    assert_eq!(push_all([stream.as_bytes()]).0, 2);
    assert_eq!(push_all(stream.as_bytes().chunks(7)).0, 2);
}

#[test]
fn endless_comments_and_blank_lines() {
    let stream = ": keep-alive\n\n\r\n:\n".repeat(50_000);
    assert_eq!(push_all(stream.as_bytes().chunks(11)).0, 0);
    let (_, reader) = push_all(std::iter::repeat_n(&b":"[..], 200_000));
    assert_eq!(reader.capacity(), 0, "a comment is not kept");
}

#[test]
fn json_text_that_closes_again_and_again() {
    let open = "{\"a\":".repeat(3_000);
    let stream = format!("{open}1\n{}", "}\n".repeat(4_000));
    push_all([stream.as_bytes()]);
    push_all(stream.as_bytes().chunks(3));
    push_all(["[".repeat(1 << 20).as_bytes()]);
}

#[test]
fn a_warm_reader_does_not_grow() {
    let mut reader = SseReader::new(MAX);
    let stream = format!("event: delta\ndata: {{\"text\":\"{}\"}}\n\n", "x".repeat(300));
    let mut capacity = None;
    for _ in 0..200 {
        for chunk in stream.as_bytes().chunks(97) {
            reader.push(chunk, |_| {});
        }
        assert_eq!(*capacity.get_or_insert_with(|| reader.capacity()), reader.capacity());
    }
    let mut untouched = SseReader::new(MAX);
    untouched.push(stream.as_bytes(), |_| {});
    assert_eq!(untouched.capacity(), 0, "a whole event is not copied");
}

#[test]
fn an_element_of_4_mib() {
    let array = format!("[{{\"a\":\"{}\"}}]", "x".repeat(4 << 20));
    for size in [array.len(), 1_000] {
        let mut reader = ArrayReader::new(MAX);
        let mut items = 0;
        for chunk in array.as_bytes().chunks(size) {
            reader.push(chunk, |_| items += 1);
            assert!(reader.capacity() <= MAX + 64, "{}", reader.capacity());
        }
        assert_eq!(items, 2);
    }
    let mut reader = ArrayReader::new(MAX);
    reader.push("[".repeat(1 << 20).as_bytes(), |_| {});
    reader.push("[{".repeat(1 << 20).as_bytes(), |_| {});
    assert!(reader.capacity() <= MAX + 64);
}
