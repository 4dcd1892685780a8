use crate::dialect::sse::{Event, Place, SseReader};

/// What a reader gave out, as text: `name|data`, marked where it is more than plain data.
fn read(chunks: &[&[u8]]) -> Vec<String> {
    let mut reader = SseReader::new(4_096);
    let mut events = Vec::new();
    let mut note = |event: Event<'_>| events.push(show(event));
    for chunk in chunks {
        reader.push(chunk, &mut note);
    }
    reader.finish(&mut note);
    events
}

fn show(event: Event<'_>) -> String {
    let Event { name, data, oversized, place } = event;
    format!(
        "{}|{}{}{}",
        String::from_utf8_lossy(name),
        String::from_utf8_lossy(data),
        if oversized { " (oversized)" } else { "" },
        match place {
            Place::Data => "",
            Place::Error => " (error)",
            Place::Outside => " (outside)",
        },
    )
}

/// Reads `stream` whole, in two pieces cut at every byte, and byte by byte.
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
fn every_line_end_ends_a_line() {
    for stream in [
        "data: a\n\ndata: b\n\n",
        "data: a\r\n\r\ndata: b\r\n\r\n",
        "data: a\r\rdata: b\r\r",
        "data: a\n\r\ndata: b\r\n\n",
        "data: a\r\n\rdata: b\n\r",
    ] {
        assert_eq!(read_all_ways(stream.as_bytes()), ["|a", "|b"], "{stream:?}");
    }
}

#[test]
fn one_line_end_is_no_blank_line() {
    assert_eq!(read_all_ways(b"data: 1\r\ndata: 2\r\n\r\n"), ["|1\n2"]);
    assert_eq!(read_all_ways(b"data: 1\rdata: 2\r\r"), ["|1\n2"]);
}

#[test]
fn the_mark_and_what_only_looks_like_it() {
    assert_eq!(read_all_ways(b"\xEF\xBB\xBFdata: a\n\n"), ["|a"]);
    assert_eq!(read_all_ways(b"\xEF\xBBdata: a\n\ndata: b\n\n"), ["|b"], "an unknown field");
    assert_eq!(read_all_ways(b"\xEF\xBB\xBF\xEF\xBB\xBFdata: a\n\ndata: b\n\n"), ["|b"]);
}

#[test]
fn comments_unknown_fields_and_empty_data_are_no_events() {
    assert_eq!(
        read_all_ways(b": hello\n\n:\n\nid: 7\nretry: 10\nfoo\n\ndata\n\ndata:\n\ndata: \n\n"),
        [""; 0]
    );
    assert_eq!(read_all_ways(b": c\ndata: a\n: c\nid: 7\n\n"), ["|a"]);
}

#[test]
fn a_name_belongs_to_its_event() {
    assert_eq!(
        read_all_ways(
            b"event: ping\ndata: 1\n\ndata: 2\n\nevent: lost\n\ndata: 3\n\nevent:x\ndata:4\n\n"
        ),
        ["ping|1", "|2", "|3", "x|4"]
    );
}

#[test]
fn one_blank_after_the_colon_is_no_data() {
    assert_eq!(read_all_ways(b"data:a\n\ndata: a\n\ndata:  a\n\n"), ["|a", "|a", "| a"]);
}

#[test]
fn characters_may_be_cut() {
    assert_eq!(
        read_all_ways("data: Gr\u{fc}\u{df}e \u{1f30d}\n\n".as_bytes()),
        ["|Gr\u{fc}\u{df}e \u{1f30d}"]
    );
}

#[test]
fn the_last_event_counts_if_it_is_whole() {
    assert_eq!(read_all_ways(b"data: [DONE]"), ["|[DONE]"]);
    assert_eq!(read_all_ways(b"data: [DONE]\r"), ["|[DONE]"]);
    assert_eq!(read_all_ways(b"event: e\ndata: {\"a\":\ndata: 1}\n"), ["e|{\"a\":\n1}"]);
    for cut in
        ["data: [DONE", "data: {\"a\":1", "data: {\"a\":1}x", "data: text\n", "data", "event: e\n"]
    {
        assert_eq!(read_all_ways(cut.as_bytes()), [""; 0], "{cut:?}");
    }
}

/// llama.cpp up to 2025.
#[test]
fn an_error_field_carries_data() {
    assert_eq!(
        read_all_ways(b"error: {\"code\":400}\n\ndata: [DONE]\n\n"),
        ["|{\"code\":400} (error)", "|[DONE]"]
    );
}

/// Gemini.
#[test]
fn json_text_between_events_is_an_error_of_its_own() {
    let pretty = "data: 1\r\n\r\n{\n  \"error\": {\n    \"a\": \"}\\\"{\"\n  }\n}";
    let expected = ["|1", "|{\n  \"error\": {\n    \"a\": \"}\\\"{\"\n  }\n} (outside)"];
    assert_eq!(read_all_ways(pretty.as_bytes()), expected);
    let more = format!("{pretty}\n\ndata: 2\n\n");
    assert_eq!(read_all_ways(more.as_bytes()), [expected[0], expected[1], "|2"]);
    assert_eq!(
        read_all_ways(b"{\"a\":1}\n[{\"b\":2}] x\n"),
        ["|{\"a\":1} (outside)", "|[{\"b\":2}] (outside)"]
    );
}

#[test]
fn json_text_that_never_ends_is_dropped() {
    assert_eq!(read_all_ways(b"{\n \"a\": [\n\ndata: 1\n\n"), ["|1"]);
    assert_eq!(read_all_ways(b"{\n \"a\": ["), [""; 0]);
    assert_eq!(
        read_all_ways(b"data: 1\n{\n\n"),
        ["|1"],
        "inside of an event it is an unknown field"
    );
}

#[test]
fn an_event_at_the_bound_is_read_and_one_past_it_is_not() {
    let event = |length: usize| format!("event: big\ndata: {}\n\ndata: 2\n\n", "x".repeat(length));
    let pieces = |text: &str| read(&text.as_bytes().chunks(613).collect::<Vec<_>>());
    for read in
        [&|text: &str| read(&[text.as_bytes()]), &pieces] as [&dyn Fn(&str) -> Vec<String>; 2]
    {
        assert_eq!(read(&event(4_096)), [format!("big|{}", "x".repeat(4_096)), "|2".into()]);
        let prefix = format!("big|{} (oversized)", "x".repeat(1_024));
        for length in [4_097, 4_098, 4_104, 4_200, 9_000] {
            assert_eq!(read(&event(length)), [prefix.clone(), "|2".into()], "{length}");
        }
    }
}

#[test]
fn many_lines_make_an_event_too_large_as_well() {
    let at_bound = format!("{}\n", "data: 1234567\n".repeat(512));
    assert_eq!(read(&[at_bound.as_bytes()])[0].len(), 1 + 512 * 8 - 1);
    let past = format!("data: x\n{at_bound}data: 2\n\n");
    let events = read(&[past.as_bytes()]);
    assert_eq!(events.len(), 2);
    assert!(
        events[0].ends_with("(oversized)") && events[0].len() == 1 + 1_024 + 12,
        "{}",
        events[0].len()
    );
    assert_eq!(read(&past.as_bytes().chunks(1).collect::<Vec<_>>()), events);
    assert_eq!(read(&past.as_bytes().chunks(100).collect::<Vec<_>>()), events);
}

#[test]
fn an_oversized_event_does_not_count_at_the_end() {
    let cut = format!("data: {}", "x".repeat(5_000));
    assert_eq!(read(&[cut.as_bytes()]), [""; 0]);
    assert_eq!(read(&cut.as_bytes().chunks(99).collect::<Vec<_>>()), [""; 0]);
}

#[test]
fn json_text_that_never_ends_takes_no_room_from_a_field() {
    let stream = format!("[{}\ndata: [{}]\n\n", "[".repeat(4_000), "1,".repeat(200));
    let whole = read(&[stream.as_bytes()]);
    assert_eq!(whole, [format!("|[{}]", "1,".repeat(200))]);
    assert_eq!(read(&stream.as_bytes().chunks(1).collect::<Vec<_>>()), whole);
}
