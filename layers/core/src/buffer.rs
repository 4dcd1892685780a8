use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many bytes of requests and held answers may be in memory at one time, over all calls that share
/// it.
///
/// Give clones of one limit to every layer of a process. What does not fit is not waited for: a
/// request is refused ([`crate::Error::Full`]), an answer is treated as one that is longer than may be
/// held.
///
/// ```
/// use backstop_core::BufferLimit;
///
/// let limit = BufferLimit::new(100);
/// let mut held = limit.reserve(60).ok_or("full")?;
/// assert!(held.grow(40) && !held.grow(1));
/// assert_eq!(limit.used(), 100);
/// drop(held);
/// assert_eq!(limit.used(), 0);
/// # Ok::<(), &str>(())
/// ```
#[derive(Clone, Debug)]
pub struct BufferLimit {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    limit: u64,
    used: AtomicU64,
}

impl BufferLimit {
    /// Up to `bytes`, all calls together.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        Self { inner: Arc::new(Inner { limit: bytes, used: AtomicU64::new(0) }) }
    }

    /// The limit, in bytes.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.inner.limit
    }

    /// The bytes that are reserved now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.inner.used.load(Ordering::Relaxed)
    }

    /// A place for `bytes`; `None` if there is none. Dropping it gives the place back.
    #[must_use]
    pub fn reserve(&self, bytes: u64) -> Option<Reservation> {
        let mut reservation = Reservation { limit: self.clone(), bytes: 0 };
        reservation.grow(bytes).then_some(reservation)
    }
}

/// A place in a [`BufferLimit`], given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    limit: BufferLimit,
    bytes: u64,
}

impl Reservation {
    /// Takes a place for `bytes` more, if there is one. One atomic step: two callers never take the
    /// same place.
    #[must_use]
    pub fn grow(&mut self, bytes: u64) -> bool {
        let Inner { limit, used } = &*self.limit.inner;
        let add = |sum: u64| sum.checked_add(bytes).filter(|sum| sum <= limit);
        let fits = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok();
        if fits {
            self.bytes += bytes;
        }
        fits
    }

    /// The limit that the place is in.
    #[must_use]
    pub const fn limit(&self) -> &BufferLimit {
        &self.limit
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.limit.inner.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_never_take_more_than_there_is_and_give_all_back() {
        let limit = BufferLimit::new(1_000);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for n in 0..2_000 {
                        let held = limit.reserve(n % 400);
                        assert!(limit.used() <= 1_000);
                        drop(held);
                    }
                });
            }
        });
        assert_eq!(limit.used(), 0);
        assert!(limit.reserve(1_000).is_some() && limit.reserve(1_001).is_none());
        assert!(limit.reserve(u64::MAX).is_none());
    }
}
