use std::borrow::Cow;
use std::fmt::Write as _;

use http::Uri;
use http::uri::{Authority, Scheme};

use crate::dialect::{Dialect, Endpoint, percent_decoded};

/// Whether `endpoint` is another one than `uri` addresses: another scheme, host, port or prefix. A
/// URI that names no host addresses nobody's.
pub(super) fn differs(uri: &Uri, endpoint: &Uri) -> bool {
    let is_same_origin = match (uri.authority(), endpoint.authority()) {
        (Some(ours), Some(theirs)) => {
            ours.host().eq_ignore_ascii_case(theirs.host())
                && port(uri) == port(endpoint)
                && uri.scheme() == endpoint.scheme()
        }
        _ => false,
    };
    let prefix = endpoint.path().trim_end_matches('/');
    let is_below = uri
        .path()
        .strip_prefix(prefix)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    !(is_same_origin && is_below)
}

fn port(uri: &Uri) -> Option<u16> {
    let default = match uri.scheme_str() {
        Some("https") => Some(443),
        Some("http") => Some(80),
        _ => None,
    };
    uri.port_u16().or(default)
}

/// The request to `uri` at `endpoint`: its API's own part of the path, appended to the endpoint's. A
/// version that both have stands there once, the endpoint's. The query stays, but for credentials.
pub(super) fn at(uri: &Uri, endpoint: &Uri, dialect: Dialect) -> Option<Uri> {
    let scheme = endpoint.scheme().cloned().unwrap_or(Scheme::HTTPS);
    let authority: Authority = endpoint.authority()?.clone();
    let prefix = endpoint.path().trim_end_matches('/');
    let mut own = own_part(uri, dialect);
    if prefix.rsplit('/').next().is_some_and(is_version) {
        let first = own.trim_start_matches('/').split('/').next().unwrap_or_default();
        if is_version(first) {
            own = own.trim_start_matches('/').strip_prefix(first).unwrap_or(own);
        }
    }
    let mut path = String::with_capacity(prefix.len() + own.len() + 1);
    path.push_str(prefix);
    if !own.starts_with('/') {
        path.push('/');
    }
    path.push_str(own);
    let pairs = endpoint.query().into_iter().flat_map(|query| query.split('&'));
    let theirs = uri.query().into_iter().flat_map(public_pairs);
    put_query(&mut path, pairs.chain(theirs));
    Uri::builder().scheme(scheme).authority(authority).path_and_query(path).build().ok()
}

/// The same address without credentials in its query; `None` where there are none.
pub(super) fn without_credentials(uri: &Uri) -> Option<Uri> {
    let query = uri.query()?;
    if public_pairs(query).count() == query.split('&').count() {
        return None;
    }
    let mut path = uri.path().to_owned();
    put_query(&mut path, public_pairs(query));
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(path.parse().ok()?);
    Uri::from_parts(parts).ok()
}

fn put_query<'a>(path: &mut String, pairs: impl Iterator<Item = &'a str>) {
    let mut sign = '?';
    for pair in pairs.filter(|pair| !pair.is_empty()) {
        let _ = write!(path, "{sign}{pair}");
        sign = '&';
    }
}

/// The pairs of a query that carry no credential.
fn public_pairs(query: &str) -> impl Iterator<Item = &str> {
    query.split('&').filter(|pair| {
        let name = pair.split('=').next().unwrap_or_default();
        // As whoever reads it will understand it: `%6Bey` is `key`.
        let name = percent_decoded(name).unwrap_or(Cow::Borrowed(name));
        !Dialect::is_credential_query(&name)
    })
}

/// The API's own part of a path: from the version before what names the endpoint, or from there.
/// The whole path where the API has no name for it.
fn own_part(uri: &Uri, dialect: Dialect) -> &str {
    let path = uri.path();
    let endpoint = dialect.endpoint(uri);
    let starts = path.match_indices('/').map(|(at, _)| at);
    let mut own = 0;
    if endpoint == Endpoint::Other {
        // A version begins the API's part, whatever comes after it.
        let version = starts.clone().find(|at| is_version(segment_at(path, *at)));
        return path.get(version.unwrap_or(0)..).unwrap_or(path);
    }
    for at in starts {
        let tail = path.get(at..).unwrap_or_default();
        if dialect.endpoint_of_path(tail, uri.query().unwrap_or_default()) != Some(endpoint) {
            break;
        }
        own = at;
    }
    let before = path.get(..own).unwrap_or_default();
    match before.rfind('/') {
        Some(at) if is_version(segment_at(path, at)) => path.get(at..).unwrap_or(path),
        _ => path.get(own..).unwrap_or(path),
    }
}

/// The segment that begins after the slash at `at`.
fn segment_at(path: &str, at: usize) -> &str {
    path.get(at + 1..).and_then(|rest| rest.split('/').next()).unwrap_or_default()
}

/// `v1`, `v1beta`, `v2alpha1`.
fn is_version(segment: &str) -> bool {
    let Some(rest) = segment.strip_prefix('v') else { return false };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let stage =
        rest.get(digits..).unwrap_or_default().trim_end_matches(|c: char| c.is_ascii_digit());
    digits > 0 && matches!(stage, "" | "alpha" | "beta" | "preview")
}
