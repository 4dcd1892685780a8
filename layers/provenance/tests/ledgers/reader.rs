use backstop_provenance::jsonl::{self, Damaged, JsonlLedger, Line};
use proptest::prelude::*;

use crate::parts::{block_on, fresh, id, keep};

fn good(name: &str) -> Vec<u8> {
    let path = fresh(name);
    block_on(keep(&JsonlLedger::open(&path).unwrap(), id(1))).unwrap();
    let mut bytes = Vec::new();
    // The ledger's drop has written it all.
    std::io::Read::read_to_end(&mut std::fs::File::open(path).unwrap(), &mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> (Vec<Line>, Vec<(u64, u64)>) {
    let (mut found, mut damaged) = (Vec::new(), Vec::new());
    for item in jsonl::lines(bytes) {
        match item {
            Ok(line) => found.push(line),
            Err(Damaged { offset, len, unread: None, .. }) => damaged.push((offset, len)),
            Err(other) => panic!("{other:?}"),
        }
    }
    (found, damaged)
}

/// Bytes, how many records are in them, and where damages are.
type Case<'a> = (&'a [u8], usize, &'a [(u64, u64)]);

#[test]
fn what_is_no_record_is_told_and_the_rest_is_read() {
    let good = good("reader");
    let text = String::from_utf8(good.clone()).unwrap();
    let [start, finish]: [&str; 2] = text.lines().collect::<Vec<_>>().try_into().unwrap();
    assert_eq!(read(&good).0.len(), 2);
    let extended = start.replacen('{', r#"{"later":[1,{"x":null}],"#, 1);
    let cases: &[Case<'_>] = &[
        (b"", 0, &[]),
        (b"\n\r\n  \n", 0, &[]),
        (b"{\"sch", 0, &[(0, 5)]),
        (b"\xff\xfe\n", 0, &[(0, 2)]),
        (b"null\n[]\n{}\n", 0, &[(0, 4), (5, 2), (8, 2)]),
        (br#"{"schema":"backstop/record/v2","record":"x"}"#, 0, &[]),
        (br#"{"schema":"backstop/record/v1","record":"lane_parked"}"#, 0, &[]),
        (br#"{"schema":"backstop/record/v1","record":"call_started"}"#, 0, &[(0, 55)]),
        (extended.as_bytes(), 1, &[]),
        // Without its line end it is whole all the same.
        (start.as_bytes(), 1, &[]),
        // What a writer who does not look leaves behind.
        (&[b"{\"schema\":\"backs", start.as_bytes(), b"\n"].concat(), 1, &[(0, 16)]),
        (
            &[&start.as_bytes()[..40], start.as_bytes(), b"\r\n", finish.as_bytes()].concat(),
            2,
            &[(0, 40)],
        ),
    ];
    for (bytes, lines, damaged) in cases {
        let found = read(bytes);
        let text = String::from_utf8_lossy(bytes);
        assert_eq!((found.0.len(), found.1.as_slice()), (*lines, *damaged), "{text}");
    }
}

#[test]
fn a_line_serialises_as_it_stands_in_the_file() {
    let good = good("line");
    let (lines, _) = read(&good);
    let text: Vec<_> = lines.iter().map(|line| serde_json::to_string(line).unwrap()).collect();
    assert_eq!(String::from_utf8(good).unwrap(), text.join("\n") + "\n");
    assert_eq!((lines[0].record(), lines[0].call()), ("call_started", Some(id(1))));
}

#[test]
fn a_line_longer_than_any_record_is_damage_of_which_little_is_held() {
    let good = good("huge");
    const LEN: usize = 64 << 20;
    let huge =
        std::io::Read::chain(std::io::Read::take(std::io::repeat(b'x'), LEN as u64), &b"\n"[..]);
    let mut items = Vec::new();
    let info = allocation_counter::measure(|| {
        items.extend(jsonl::lines(std::io::Read::chain(huge, good.as_slice())));
    });
    assert!(info.bytes_max < 4 << 20, "{info:?}");
    assert_eq!(items.len(), 3);
    let Err(damaged) = &items[0] else { panic!("{items:?}") };
    assert_eq!((damaged.offset, damaged.len), (0, LEN as u64));
    // At the bound and one past it.
    let mut line = good.split(|byte| *byte == b'\n').next().unwrap().to_vec();
    line.resize((1 << 20) - 1, b' ');
    assert_eq!(read(&line).0.len(), 1);
    line.push(b' ');
    assert_eq!(read(&line), (vec![], vec![(0, 1 << 20)]));
}

#[test]
fn what_cannot_be_read_on_is_the_last_item() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::ConnectionReset.into())
        }
    }
    let good = good("broken");
    let items: Vec<_> = jsonl::lines(std::io::Read::chain(good.as_slice(), Broken)).collect();
    assert_eq!(items.len(), 3);
    let Err(damaged) = &items[2] else { panic!("{items:?}") };
    assert_eq!(damaged.unread, Some(std::io::ErrorKind::ConnectionReset));
    assert_eq!(damaged.offset, good.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_is_read_to_its_end(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let _ = read(&bytes);
    }

    #[test]
    fn pieces_of_records_are_read_to_their_end(
        pieces in proptest::collection::vec((0..700_usize, 0..700_usize, any::<bool>()), 0..20),
    ) {
        static GOOD: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let good = GOOD.get_or_init(|| good("pieces"));
        let mut bytes = Vec::new();
        for (from, len, is_line) in pieces {
            let from = from.min(good.len());
            bytes.extend_from_slice(&good[from..(from + len).min(good.len())]);
            bytes.extend(is_line.then_some(b'\n'));
        }
        let (lines, damaged) = read(&bytes);
        let told: u64 = damaged.iter().map(|(_, len)| len).sum();
        prop_assert!(told <= bytes.len() as u64);
        prop_assert!(lines.len() + damaged.len() <= bytes.len() + 1);
    }
}
