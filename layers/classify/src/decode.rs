use http::HeaderMap;
use http::header::CONTENT_ENCODING;

/// Reads a body's content coding, so that the answer can be judged while its bytes are handed on as
/// they came.
#[derive(Debug)]
pub(crate) enum Decoder {
    /// Nothing to undo.
    Identity,
    /// gzip or deflate, undone piece by piece.
    #[cfg(feature = "decompress")]
    Inflate(Box<inflate::Inflate>),
    /// A coding that cannot be read here: the answer is judged by its status and headers.
    Unreadable,
}

/// The body is not what its `content-encoding` says.
#[derive(Debug)]
pub(crate) struct Corrupt;

impl Decoder {
    /// The decoder for an answer with these headers.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let mut codings = headers
            .get_all(CONTENT_ENCODING)
            .iter()
            .flat_map(|value| value.to_str().unwrap_or("unreadable").split(','))
            .map(str::trim)
            .filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"));
        match (codings.next(), codings.next()) {
            (None, _) => Self::Identity,
            (Some(only), None) => Self::of_coding(only),
            (Some(_), Some(_)) => Self::Unreadable,
        }
    }

    #[cfg(not(feature = "decompress"))]
    const fn of_coding(_: &str) -> Self {
        Self::Unreadable
    }

    #[cfg(feature = "decompress")]
    fn of_coding(coding: &str) -> Self {
        if coding.eq_ignore_ascii_case("gzip") || coding.eq_ignore_ascii_case("x-gzip") {
            Self::Inflate(Box::new(inflate::Inflate::gzip()))
        } else if coding.eq_ignore_ascii_case("deflate") {
            Self::Inflate(Box::new(inflate::Inflate::deflate()))
        } else {
            Self::Unreadable
        }
    }

    pub(crate) const fn is_readable(&self) -> bool {
        !matches!(self, Self::Unreadable)
    }

    pub(crate) const fn is_identity(&self) -> bool {
        matches!(self, Self::Identity)
    }

    /// Hands the decoded form of `bytes` to `sink`, piece by piece; a piece is never larger than the
    /// worst blow-up of [`STEP`] bytes, so that a bomb cannot fill the memory. `sink` says whether to
    /// go on.
    #[cfg_attr(
        not(feature = "decompress"),
        expect(clippy::needless_pass_by_ref_mut, reason = "a decoder with state needs it")
    )]
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        mut sink: impl FnMut(&[u8]) -> bool,
    ) -> Result<(), Corrupt> {
        match self {
            Self::Identity => {
                sink(bytes);
                Ok(())
            }
            #[cfg(feature = "decompress")]
            Self::Inflate(inflate) => {
                for step in bytes.chunks(STEP) {
                    if !sink(inflate.push(step)?) {
                        break;
                    }
                }
                Ok(())
            }
            Self::Unreadable => Ok(()),
        }
    }

    /// The bytes are over: whether nothing is missing of them, the checksum included. Nothing can be
    /// pushed any more.
    #[cfg_attr(
        not(feature = "decompress"),
        expect(clippy::needless_pass_by_ref_mut, reason = "there is no decoder to finish then")
    )]
    pub(crate) fn finish(&mut self) -> Result<(), Corrupt> {
        match self {
            Self::Identity | Self::Unreadable => Ok(()),
            #[cfg(feature = "decompress")]
            Self::Inflate(inflate) => inflate.finish(),
        }
    }
}

#[cfg(feature = "decompress")]
mod inflate {
    use std::io::Write;

    use flate2::write::{MultiGzDecoder, ZlibDecoder};

    use super::Corrupt;

    #[derive(Debug)]
    pub(crate) struct Inflate {
        coding: Coding,
        decoded: Vec<u8>,
    }

    #[derive(Debug)]
    enum Coding {
        Gzip(MultiGzDecoder<Vec<u8>>),
        Deflate(ZlibDecoder<Vec<u8>>),
    }

    impl Inflate {
        pub(crate) fn gzip() -> Self {
            Self { coding: Coding::Gzip(MultiGzDecoder::new(Vec::new())), decoded: Vec::new() }
        }

        /// `deflate` is zlib's format (RFC 9110, 8.4.1.2).
        pub(crate) fn deflate() -> Self {
            Self { coding: Coding::Deflate(ZlibDecoder::new(Vec::new())), decoded: Vec::new() }
        }

        /// The decoded form of `step`, as far as it is known by now.
        pub(crate) fn push(&mut self, step: &[u8]) -> Result<&[u8], Corrupt> {
            self.decoded.clear();
            let Self { coding, decoded } = self;
            // Flushing makes an event visible in the moment in which its bytes are there.
            let written = match coding {
                Coding::Gzip(gzip) => gzip
                    .write_all(step)
                    .and_then(|()| gzip.flush())
                    .map(|()| std::mem::swap(gzip.get_mut(), decoded)),
                Coding::Deflate(zlib) => zlib
                    .write_all(step)
                    .and_then(|()| zlib.flush())
                    .map(|()| std::mem::swap(zlib.get_mut(), decoded)),
            };
            written.map_err(|_| Corrupt)?;
            Ok(&self.decoded)
        }

        /// What is left to come out was flushed out already; only the end is checked.
        pub(crate) fn finish(&mut self) -> Result<(), Corrupt> {
            match &mut self.coding {
                Coding::Gzip(gzip) => gzip.try_finish(),
                Coding::Deflate(zlib) => zlib.try_finish(),
            }
            .map_err(|_| Corrupt)
        }
    }
}

/// Input that is decoded at once: deflate blows up at most 1032-fold, so a piece stays below 1 MiB.
#[cfg(feature = "decompress")]
const STEP: usize = 1000;

#[cfg(all(test, feature = "decompress"))]
mod tests {
    use std::io::Write;

    use super::*;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(text).and_then(|()| encoder.finish()).expect("a vector takes it")
    }

    fn decoder(coding: &'static str) -> Decoder {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_ENCODING, http::HeaderValue::from_static(coding));
        Decoder::of(&headers)
    }

    fn decode(decoder: &mut Decoder, bytes: &[u8]) -> Result<Vec<u8>, Corrupt> {
        let mut out = Vec::new();
        decoder.push(bytes, |piece| {
            out.extend_from_slice(piece);
            true
        })?;
        Ok(out)
    }

    #[test]
    fn any_cut_gives_the_same_text() {
        let text = b"data: {\"a\":1}\n\ndata: {\"b\":2}\n\n".repeat(50);
        let packed = gzip(&text);
        for cut in 0..packed.len() {
            let mut decoder = decoder("gzip");
            let (head, tail) = packed.split_at(cut);
            let mut all = decode(&mut decoder, head).unwrap();
            all.extend(decode(&mut decoder, tail).unwrap());
            assert_eq!(all, text, "cut at {cut}");
        }
    }

    #[test]
    fn an_event_is_visible_as_soon_as_its_bytes_are_flushed() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        let mut decoder = decoder("gzip");
        for event in ["data: one\n\n", "data: two\n\n"] {
            encoder.write_all(event.as_bytes()).unwrap();
            encoder.flush().unwrap();
            let packed = std::mem::take(encoder.get_mut());
            assert_eq!(decode(&mut decoder, &packed).unwrap(), event.as_bytes());
        }
    }

    #[test]
    fn a_bomb_comes_in_small_pieces_and_can_be_stopped() {
        let bomb = gzip(&vec![b'x'; 64 << 20]);
        let (mut largest, mut total) = (0, 0);
        let done = decoder("gzip").push(&bomb, |piece| {
            largest = largest.max(piece.len());
            total += piece.len();
            total < 4 << 20
        });
        assert!(done.is_ok());
        assert!(largest <= 2 << 20, "{largest}");
        assert!(total < 8 << 20, "{total}");
    }

    #[test]
    fn what_is_no_gzip_is_corrupt_and_unknown_codings_are_unreadable() {
        assert!(decode(&mut decoder("gzip"), b"{\"plain\":true}").is_err());
        for coding in ["zstd", "gzip, br", "weird"] {
            assert!(!decoder(coding).is_readable(), "{coding}");
        }
        assert!(decoder("identity").is_identity());
        assert!(matches!(decoder("identity, GZIP"), Decoder::Inflate(_)));
    }
}
