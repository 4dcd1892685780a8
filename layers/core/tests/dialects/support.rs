use std::time::SystemTime;

use backstop_core::dialect::{BodyEnd, Dialect, Judge, Mode, Presentation, Route, Seen};
use backstop_core::{Class, StreamEnd, Verdict};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use serde_json::Value;

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const STREAM: &str = "text/event-stream";

/// An endpoint of each grammar of server-sent events.
pub(crate) const PATHS: [(Dialect, &str); 4] = [
    (Dialect::OPENAI, CHAT),
    (Dialect::OPENAI, "/v1/responses"),
    (Dialect::ANTHROPIC, "/v1/messages"),
    (Dialect::GEMINI, "/models/m:streamGenerateContent?alt=sse"),
];

/// One line of the cases.
pub(crate) struct Case {
    pub(crate) id: String,
    pub(crate) provider: String,
    pub(crate) endpoint: Uri,
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) chunks: Vec<Vec<u8>>,
    pub(crate) streaming: bool,
    pub(crate) end: BodyEnd,
    pub(crate) now: SystemTime,
    pub(crate) expect: Value,
}

/// All cases of all providers.
pub(crate) fn cases() -> Vec<Case> {
    include_str!("../../../../tests/data/wire-cases.jsonl").lines().map(case).collect()
}

/// The cases whose dialects exist, but for those in which no answer came.
pub(crate) fn known_cases() -> Vec<Case> {
    let known = |case: &Case| Dialect::from_name(&case.provider).is_some() && case.status != 0;
    cases().into_iter().filter(known).collect()
}

fn case(line: &str) -> Case {
    let case: Value = serde_json::from_str(line).unwrap();
    let is_base64 = case["encoding"] == "base64";
    let bytes = |text: &Value| match text.as_str() {
        Some(text) if is_base64 => base64(text),
        text => text.unwrap_or_default().as_bytes().to_vec(),
    };
    let headers: HeaderMap = case["headers"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| {
            let value = HeaderValue::from_str(value.as_str().unwrap()).unwrap();
            (HeaderName::try_from(name).unwrap(), value)
        })
        .collect();
    let now = case["now"].as_str().unwrap_or("2026-01-01T00:00:00Z");
    assert_eq!(now, "2026-01-01T00:00:00Z", "the only moment in the cases");
    let is_compressed = headers.contains_key("content-encoding");
    Case {
        id: case["id"].as_str().unwrap().into(),
        provider: case["provider"].as_str().unwrap().into(),
        endpoint: case["endpoint"].as_str().unwrap().parse().unwrap(),
        status: case["status"].as_u64().unwrap().try_into().unwrap(),
        body: bytes(&case["body"]),
        chunks: case["chunks"].as_array().into_iter().flatten().map(bytes).collect(),
        streaming: case["streaming"].as_bool().unwrap(),
        end: match case["stream_abort"].as_str() {
            Some("reset") => BodyEnd::Broken,
            Some(other) => panic!("unknown end {other}"),
            None if is_compressed => BodyEnd::Unread,
            None => BodyEnd::Eof,
        },
        now: httpdate("Thu, 01 Jan 2026 00:00:00 GMT"),
        headers,
        expect: case["expect"].clone(),
    }
}

impl Case {
    pub(crate) fn judge(&self, mode: Mode) -> Judge {
        let route = Route::of_request(&Method::POST, &self.endpoint, &HeaderMap::new());
        assert_eq!(route.dialect().map(Dialect::name), Some(&*self.provider), "{}", self.id);
        let status = StatusCode::from_u16(self.status).unwrap();
        Judge::new(mode, route, status, &self.headers, self.now)
    }

    pub(crate) fn judged(&self, mode: Mode) -> (Verdict, Presentation) {
        judged(self.judge(mode), &self.body, self.chunks.iter().map(|c| &**c), self.end)
    }
}

/// Pushes `chunks` as a layer would, to their end.
pub(crate) fn judged<'a>(
    mut judge: Judge,
    body: &[u8],
    chunks: impl IntoIterator<Item = &'a [u8]>,
    end: BodyEnd,
) -> (Verdict, Presentation) {
    let mut content = false;
    for chunk in chunks {
        let seen = judge.push(chunk);
        content |= seen == Seen::Content;
        assert!(!content || judge.content_started(), "content is never forgotten");
    }
    let verdict = judge.finish(body, end);
    (verdict, judge.presentation())
}

/// A judge of a 200 of `dialect` at `path`, with this content type.
pub(crate) fn good(mode: Mode, dialect: Dialect, path: &str, content_type: &str) -> Judge {
    let uri: Uri = path.parse().unwrap();
    let mut headers = HeaderMap::new();
    headers.insert("content-type", HeaderValue::from_str(content_type).unwrap());
    Judge::new(
        mode,
        Route::new(dialect, &Method::POST, &uri),
        StatusCode::OK,
        &headers,
        SystemTime::UNIX_EPOCH,
    )
}

/// What a stream of `dialect` at `path` amounts to that sends `events` and comes to this `end`.
pub(crate) fn stream(
    dialect: Dialect,
    path: &str,
    events: &[&str],
    end: BodyEnd,
) -> (Class, Option<StreamEnd>) {
    let judge = good(Mode::Provider, dialect, path, STREAM);
    let (verdict, _) = judged(judge, b"", events.iter().map(|event| event.as_bytes()), end);
    (verdict.class(), verdict.stream_end())
}

/// A small generator (splitmix64), so that a failure can be repeated.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) >> 33).unwrap() % bound.max(1)
    }

    /// `bytes`, cut at random places.
    pub(crate) fn cut<'a>(&mut self, mut bytes: &'a [u8]) -> Vec<&'a [u8]> {
        let mut pieces = Vec::new();
        let longest = 1 + self.below(96);
        while !bytes.is_empty() {
            let (piece, rest) = bytes.split_at((1 + self.below(longest)).min(bytes.len()));
            pieces.push(piece);
            bytes = rest;
        }
        pieces
    }
}

fn httpdate(text: &str) -> SystemTime {
    httpdate::parse_http_date(text).unwrap()
}

fn base64(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("no base64 digit: {byte}"),
    };
    let mut out = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for byte in text.bytes().filter(|byte| *byte != b'=') {
        bits = bits << 6 | u32::from(digit(byte));
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push(u8::try_from(bits >> count & 0xFF).unwrap());
        }
    }
    out
}
