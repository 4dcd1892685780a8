use super::*;

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

const KINDS: [Jitter; 6] = [
    Jitter::None,
    Jitter::Additive(0.25),
    Jitter::Additive(1.0),
    Jitter::Full,
    Jitter::Equal,
    Jitter::Decorrelated,
];

#[test]
fn the_wait_doubles_exactly_and_never_overflows() {
    let schedule = Schedule::new(Duration::from_nanos(3), Duration::MAX);
    for n in 0..80 {
        assert_eq!(schedule.nominal(n).as_nanos(), 3 << n);
    }
    for n in [94, 127, 128, 1_000, u32::MAX] {
        assert_eq!(schedule.nominal(n), Duration::MAX, "{n}");
    }
    let capped = Schedule::new(seconds(1), seconds(30));
    for n in 5..200 {
        assert_eq!(capped.nominal(n), seconds(30));
    }
    assert_eq!(capped.nominal(u32::MAX), seconds(30));
}

#[test]
fn a_fractional_factor_never_shrinks_a_wait_and_ends_at_the_ceiling() {
    for (initial, max) in [(seconds(1), seconds(30)), (Duration::MAX / 2, Duration::MAX)] {
        let schedule = Schedule::new(initial, max).with_factor(1.5);
        let mut last = Duration::ZERO;
        for n in 0..2_000 {
            let wait = schedule.nominal(n);
            assert!(wait >= last && !wait.is_zero(), "{n}: {wait:?} after {last:?}");
            last = wait;
        }
        assert_eq!(last, max);
    }
}

#[test]
fn no_draw_of_any_kind_leaves_the_published_bound() {
    for jitter in KINDS {
        let schedule = Schedule::new(seconds(1), seconds(30)).with_jitter(jitter);
        schedule.check().unwrap();
        for draw in [0.0, 0.5, 1.0f64.next_down()] {
            let mut previous = Duration::ZERO;
            for n in (0..40).chain([u32::MAX]) {
                let wait = schedule.jittered(n, previous, draw);
                assert!(wait <= schedule.longest_wait(), "{jitter:?} n={n}: {wait:?}");
                if matches!(jitter, Jitter::Additive(_) | Jitter::None) {
                    assert!(wait >= schedule.nominal(n), "{jitter:?} only adds");
                }
                previous = wait;
            }
        }
    }
}

#[test]
fn jitter_is_still_there_at_the_ceiling() {
    let schedule = Schedule::new(seconds(1), seconds(30));
    let mut generator = Seed::new(7).split();
    let waits: Vec<_> =
        (0..10).map(|_| schedule.jittered(20, seconds(30), generator.draw())).collect();
    assert!(waits.windows(2).all(|pair| pair[0] != pair[1]), "{waits:?}");
}

#[test]
fn each_kind_is_what_its_name_says() {
    let at = |jitter, n, previous, draw| {
        Schedule::new(seconds(1), seconds(30)).with_jitter(jitter).jittered(n, previous, draw)
    };
    let zero = Duration::ZERO;
    assert_eq!(at(Jitter::None, 2, zero, 0.5), seconds(4));
    assert_eq!(at(Jitter::Additive(0.25), 2, zero, 0.5), Duration::from_millis(4_500));
    assert_eq!(at(Jitter::Full, 2, zero, 0.5), seconds(2));
    assert_eq!(at(Jitter::Equal, 2, zero, 0.5), seconds(3));
    assert_eq!(at(Jitter::Decorrelated, 0, zero, 0.5), seconds(2), "1 + 0.5 * (3*1 - 1)");
    assert_eq!(at(Jitter::Decorrelated, 1, seconds(5), 0.5), seconds(8), "1 + 0.5 * (3*5 - 1)");
    assert_eq!(at(Jitter::Decorrelated, 1, seconds(29), 0.9), seconds(30), "capped");
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let good = Schedule::new(seconds(1), seconds(2));
    let bad = [
        Schedule::new(seconds(3), seconds(2)),
        Schedule::new(Duration::ZERO, seconds(2)),
        good.clone().with_factor(0.5),
        good.clone().with_factor(f64::NAN),
        good.clone().with_factor(f64::INFINITY),
        good.clone().with_jitter(Jitter::Additive(f64::NAN)),
        good.clone().with_jitter(Jitter::Additive(-0.1)),
        good.clone().with_jitter(Jitter::Additive(1.1)),
    ];
    good.check().unwrap();
    for schedule in bad {
        assert!(schedule.check().is_err(), "{schedule:?}");
    }
}

#[test]
fn calls_of_one_seed_differ_and_the_same_seed_repeats() {
    let draws =
        |seed: &Seed| -> Vec<u64> { (0..100).map(|_| seed.split().draw().to_bits()).collect() };
    let (a, b) = (Seed::new(1), Seed::new(1));
    let first = draws(&a);
    assert_eq!(first, draws(&b));
    assert_ne!(first, draws(&Seed::new(2)));
    let mut distinct = first.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), first.len(), "clones of one generator would repeat");
    let clone = a.clone();
    assert_ne!(a.split().draw().to_bits(), clone.split().draw().to_bits());
}

#[test]
fn the_defaults_wait_63_and_a_half_seconds_in_seven_retries() {
    let (nominal, most) = Schedule::default().total(7);
    assert_eq!(nominal, Duration::from_millis(63_500));
    assert_eq!(most, Duration::from_millis(79_375));
    for jitter in KINDS {
        let schedule = Schedule::new(seconds(1), seconds(60)).with_jitter(jitter);
        let (_, most) = schedule.total(9);
        for seed in 0..500 {
            let (mut generator, mut previous) = (Seed::new(seed).split(), Duration::ZERO);
            let mut sum = Duration::ZERO;
            for n in 0..9 {
                previous = schedule.jittered(n, previous, generator.draw());
                sum += previous;
            }
            assert!(sum <= most, "{jitter:?} {seed}: {sum:?} past {most:?}");
        }
    }
    let (nominal, _) = Schedule::default().total(u32::MAX);
    assert_eq!(nominal, Duration::from_millis(63_500) + seconds(60) * (u32::MAX - 7));
}
