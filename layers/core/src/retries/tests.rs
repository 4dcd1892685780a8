use super::*;
use crate::Jitter;

fn start() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
    Instant::now()
}

#[derive(Clone)]
struct Policy {
    schedule: Schedule,
    bounds: Bounds,
}

impl Policy {
    fn next(&self, retries: &mut Retries, hint: Option<Hint>, now: Instant, seed: &Seed) -> Next {
        retries.next(&self.schedule, &self.bounds, hint, now, seed)
    }
}

fn policy(initial_ms: u64, retries: i64, time: f64) -> Policy {
    Policy {
        schedule: Schedule::new(Duration::from_millis(initial_ms), Duration::from_secs(60))
            .with_jitter(Jitter::None),
        bounds: Bounds::new(Guards {
            max_retries: Limit::retries("max_retries", retries).unwrap(),
            max_retry_time: Limit::seconds("max_retry_time", time).unwrap(),
            ..Guards::default()
        }),
    }
}

/// The waits, in milliseconds, until a guard ends it, and that guard.
fn run(policy: &Policy, attempts: Option<u32>, hint: Option<Hint>) -> (Vec<u128>, Guard) {
    let (mut retries, seed, now) = (Retries::new(), Seed::new(0), start());
    let mut policy = policy.clone();
    policy.bounds.attempts = attempts;
    let mut waits = Vec::new();
    loop {
        match policy.next(&mut retries, hint, now, &seed) {
            Next::Wait { wait, .. } => waits.push(wait.as_millis()),
            Next::Stop(guard) => {
                assert_eq!(retries.count() as usize, waits.len());
                assert_eq!(retries.waited().as_millis(), waits.iter().sum());
                return (waits, guard);
            }
        }
    }
}

fn hint(seconds: u64) -> Option<Hint> {
    Hint::new(Duration::from_secs(seconds), HintSource::RetryAfter)
}

#[test]
fn the_defaults_give_seven_retries() {
    let schedule = Schedule::default().with_jitter(Jitter::None);
    let policy = Policy { schedule, bounds: Bounds::default() };
    let (waits, guard) = run(&policy, None, None);
    assert_eq!(waits, [500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000]);
    assert_eq!(guard, Guard::MaxRetries);
}

#[test]
fn each_guard_alone_ends_the_rung_with_the_other_off() {
    assert_eq!(run(&policy(100, 0, -1.0), None, None), (vec![], Guard::MaxRetries));
    assert_eq!(run(&policy(100, 2, -1.0), None, None), (vec![100, 200], Guard::MaxRetries));
    let by_time = (vec![100, 200, 400, 800], Guard::MaxRetryTime);
    assert_eq!(run(&policy(100, -1, 1.5), None, None), by_time, "exactly used up");
    assert_eq!(run(&policy(100, -1, 1.4), None, None), by_time, "compared before the wait");
    let (waits, guard) = run(&policy(100, -1, 1.501), None, None);
    assert_eq!((waits.len(), guard), (5, Guard::MaxRetryTime), "one past it");
    assert_eq!(run(&policy(100, -1, 0.0), None, None), (vec![], Guard::MaxRetryTime));
}

#[test]
fn the_rungs_own_attempts_include_the_first() {
    for (attempts, waits) in [(1, vec![]), (2, vec![100]), (3, vec![100, 200])] {
        assert_eq!(run(&policy(100, 7, -1.0), Some(attempts), None), (waits, Guard::Attempts));
    }
    assert_eq!(run(&policy(100, 1, -1.0), Some(9), None), (vec![100], Guard::MaxRetries));
}

#[test]
fn a_hint_is_never_undercut_and_a_longer_schedule_stays() {
    let policy = policy(1_000, 4, -1.0);
    assert_eq!(run(&policy, None, hint(3)).0, [3_000, 3_000, 4_000, 8_000]);
}

#[test]
fn a_hint_past_max_hint_ends_the_rung_and_one_at_it_does_not() {
    let policy = policy(500, 7, 1e9);
    assert_eq!(run(&policy, None, hint(121)), (vec![], Guard::MaxHint));
    assert_eq!(run(&policy, None, hint(120)).0, [120_000; 7]);
}

#[test]
fn jitter_on_a_hint_only_adds_for_every_kind() {
    for jitter in
        [Jitter::Additive(0.25), Jitter::Full, Jitter::Equal, Jitter::Decorrelated, Jitter::None]
    {
        let mut policy = policy(1_000, 1, -1.0);
        policy.schedule = policy.schedule.with_jitter(jitter);
        let mut seen = Vec::new();
        for call in 0..200 {
            let next = policy.next(&mut Retries::new(), hint(8), start(), &Seed::new(call));
            let Next::Wait { wait, reason } = next else { panic!("{next:?}") };
            assert!(wait >= Duration::from_secs(8) && wait <= Duration::from_secs(10), "{wait:?}");
            assert_eq!(reason, WaitReason::Hint(HintSource::RetryAfter));
            seen.push(wait);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len() > 1, jitter != Jitter::None, "a herd is spread: {jitter:?}");
    }
}

#[test]
fn a_hint_belongs_to_its_own_failure() {
    let (mut retries, seed, policy) = (Retries::new(), Seed::new(0), policy(100, 9, -1.0));
    let mut next = |hint| policy.next(&mut retries, hint, start(), &seed);
    assert!(matches!(next(hint(7)), Next::Wait { wait, .. } if wait.as_secs() == 7));
    let Next::Wait { wait, reason } = next(None) else { panic!("two retries of nine") };
    assert_eq!((wait.as_millis(), reason), (200, WaitReason::Schedule));
}

#[test]
fn the_deadline_looks_ahead_to_the_end_of_the_wait() {
    let (mut policy, now, seed) = (policy(1_000, 9, -1.0), start(), Seed::new(0));
    for (left_ms, goes_on) in [(999, false), (1_000, false), (1_001, true)] {
        policy.bounds.deadline = Some(now + Duration::from_millis(left_ms));
        let next = policy.next(&mut Retries::new(), None, now, &seed);
        assert_eq!(matches!(next, Next::Wait { .. }), goes_on, "{left_ms}: {next:?}");
        assert_eq!(matches!(next, Next::Stop(Guard::Deadline)), !goes_on);
    }
    let endless = Hint::new(Duration::MAX, HintSource::RetryAfter);
    policy.bounds.guards.max_hint = Limit::Unlimited;
    policy.bounds.deadline = Some(now + Duration::from_secs(1 << 40));
    let next = policy.next(&mut Retries::new(), endless, now, &seed);
    assert_eq!(next, Next::Stop(Guard::Deadline), "a wait past every instant is past any deadline");
}

#[test]
fn both_guards_off_goes_on_and_on() {
    let policy = policy(1, -1, -1.0);
    assert!(policy.bounds.guards.are_both_off());
    let (mut retries, seed, now) = (Retries::new(), Seed::new(0), start());
    for _ in 0..100_000 {
        let next = policy.next(&mut retries, None, now, &seed);
        assert!(matches!(next, Next::Wait { .. }), "{next:?}");
    }
}
