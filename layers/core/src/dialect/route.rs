use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Uri};

use super::{Dialect, Endpoint};

/// Whose API a request is for, and which part of it: all that the judge of its answer needs to know
/// of it. Small; copy it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Route {
    dialect: Option<Dialect>,
    endpoint: Endpoint,
}

impl Route {
    /// An API that is not known: answers are judged by status and by the general look of an error.
    pub const UNKNOWN: Self = Self { dialect: None, endpoint: Endpoint::Other };

    /// The route of a request whose dialect is known from elsewhere, for example from a config.
    #[must_use]
    pub fn new(dialect: Dialect, method: &Method, uri: &Uri) -> Self {
        Self { dialect: Some(dialect), endpoint: posted(method, dialect.endpoint(uri)) }
    }

    /// The route of a request by itself: by its path, whatever stands before the API's own part of
    /// it, and if the path does not tell, by headers that only one provider has.
    ///
    /// The dialect is known by the path alone, so that its errors are understood; but the endpoints
    /// that generate something are those of `POST`. `GET /v1/chat/completions` lists what is stored,
    /// and `HEAD` and `OPTIONS` answer with nothing: [`Endpoint::Other`].
    #[must_use]
    pub fn of_request(method: &Method, uri: &Uri, headers: &HeaderMap) -> Self {
        for dialect in LIKELY_FIRST.iter().copied() {
            if let Some(endpoint) = dialect.endpoint_of(uri) {
                return Self { dialect: Some(dialect), endpoint: posted(method, endpoint) };
            }
        }
        let by_header = TELLING_HEADERS.iter().find(|(name, _)| headers.contains_key(*name));
        Self { dialect: by_header.map(|(_, dialect)| *dialect), endpoint: Endpoint::Other }
    }

    /// The dialect, if it is known.
    #[must_use]
    pub const fn dialect(self) -> Option<Dialect> {
        self.dialect
    }

    /// The part of the API.
    #[must_use]
    pub const fn endpoint(self) -> Endpoint {
        self.endpoint
    }

    /// The dialect, if it has facts about what this endpoint answers.
    pub(super) fn grammar(self) -> Option<Dialect> {
        self.dialect.filter(|_| self.endpoint != Endpoint::Other)
    }
}

/// `endpoint`, whose grammar holds for what is posted to it.
fn posted(method: &Method, endpoint: Endpoint) -> Endpoint {
    if method == Method::POST { endpoint } else { Endpoint::Other }
}

/// Every dialect; no path belongs to two of them, so that the order is only a matter of speed.
const LIKELY_FIRST: &[Dialect] = &[Dialect::OPENAI, Dialect::ANTHROPIC, Dialect::GEMINI];

/// Headers that only one provider's clients send. Sources: anthropics/anthropic-sdk-python
/// src/anthropic/_client.py; googleapis/python-genai google/genai/_api_client.py;
/// openai/openai-openapi openapi.json.
const TELLING_HEADERS: &[(&str, Dialect)] = &[
    ("anthropic-version", Dialect::ANTHROPIC),
    ("x-goog-api-key", Dialect::GEMINI),
    ("openai-organization", Dialect::OPENAI),
    ("openai-project", Dialect::OPENAI),
];

/// The model and the method in a path such as `/v1beta/models/{model}:generateContent`: the last
/// segment, which a segment `models` (or `tunedModels`) must precede. Clients may write the colon
/// as `%3A`.
pub(super) fn model_and_method(path: &str) -> Option<(Range<usize>, &str)> {
    // Most paths end in no method: that is seen at a glance.
    memchr::memrchr2(b':', b'%', path.as_bytes())?;
    let start = memchr::memrchr(b'/', path.as_bytes())? + 1;
    let collection = path[..start - 1].rsplit('/').next()?;
    if !matches!(collection, "models" | "tunedModels") {
        return None;
    }
    let segment = &path[start..];
    let (model, method) = segment
        .rsplit_once(':')
        .or_else(|| segment.rsplit_once("%3A"))
        .or_else(|| segment.rsplit_once("%3a"))?;
    (!model.is_empty()).then(|| (start..start + model.len(), method))
}

/// The model that the path names, decoded.
pub(super) fn model_in_path(uri: &Uri) -> Option<Cow<'_, str>> {
    let (span, _) = model_and_method(uri.path())?;
    percent_decoded(&uri.path()[span])
}

/// `uri` with another model in its path.
pub(super) fn with_model_in_path(uri: &Uri, model: &str) -> Option<Uri> {
    let path = uri.path();
    let (span, _) = model_and_method(path)?;
    let query = uri.query();
    let mut new = String::with_capacity(path.len() + model.len() + query.map_or(0, str::len) + 1);
    new.push_str(&path[..span.start]);
    percent_encode(model, &mut new);
    new.push_str(&path[span.end..]);
    if let Some(query) = query {
        new.push('?');
        new.push_str(query);
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::from_maybe_shared(Bytes::from(new)).ok()?);
    Uri::from_parts(parts).ok()
}

/// What a part of a URI means; `None` if that is no text.
pub(crate) fn percent_decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let pair =
            (byte == b'%').then(|| Some((hex(*bytes.get(at + 1)?)?, hex(*bytes.get(at + 2)?)?)));
        match pair.flatten() {
            Some((high, low)) => {
                out.push(high << 4 | low);
                at += 3;
            }
            None => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(out).ok().map(Cow::Owned)
}

/// Leaves what RFC 3986 allows in a segment, but for the colon, which ends the model here.
fn percent_encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=@".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

const HEX: &[u8; 16] = b"0123456789ABCDEF";
