//! The SHA-256 of a caller's body.

use backstop_core::RequestBody;

/// In hexadecimal; `None` without the feature `digest`.
#[cfg(feature = "digest")]
pub(crate) fn of_body(body: &RequestBody) -> Option<String> {
    use sha2::{Digest, Sha256};
    use std::fmt::Write;

    let mut hash = Sha256::new();
    let mut pieces = body.clone();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    // It is there whole, in pieces: no copy is made of them.
    while let std::task::Poll::Ready(Some(Ok(frame))) =
        http_body::Body::poll_frame(std::pin::Pin::new(&mut pieces), &mut cx)
    {
        if let Ok(data) = frame.into_data() {
            hash.update(&data);
        }
    }
    let mut text = String::with_capacity(64);
    for byte in hash.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    Some(text)
}

/// In hexadecimal; `None` without the feature `digest`.
#[cfg(not(feature = "digest"))]
pub(crate) fn of_body(_: &RequestBody) -> Option<String> {
    None
}
