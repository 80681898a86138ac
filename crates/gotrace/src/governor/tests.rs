use std::collections::HashMap;

use goexe::Class;
use proptest::prelude::*;

use super::{
    meter::{Governors, Hits, Kernel, Running, Traps},
    *,
};
use crate::discover::FileId;

/// A load that stays the same: the cost of each part per tick if nothing is cut, and the CPU time.
#[derive(Clone, Copy, Debug)]
struct Load {
    ns: [f64; PARTS],
    cpu_ns: f64,
}

impl Load {
    /// What a tick costs with this cut.
    fn tick(self, cut: Cut) -> Spent {
        let mut ns = self.ns;
        for part in Part::ALL {
            ns[part.index()] *= cut.keeps(*part);
        }
        Spent { ns, cpu_ns: self.cpu_ns, elapsed_ns: TICK_NS as f64 }
    }
}

fn loads() -> impl Strategy<Value = Load> {
    // Up to 30 % for each part, of up to two CPUs; idle as well.
    let parts = prop::array::uniform6(prop_oneof![Just(0.0), 0.0..0.3]);
    (parts, prop_oneof![Just(0.0), 1e5..1e9])
        .prop_map(|(parts, cpu_ns)| Load { ns: parts.map(|part| part * cpu_ns), cpu_ns })
}

fn is_over(governor: &Governor, spent: &Spent) -> bool {
    spent.total() > governor.allowed_ns(spent) * (1.0 + 1e-9)
}

/// Whether nothing that is left can be cut.
fn is_least(load: Load, cut: Cut) -> bool {
    load.tick(cut).total() <= load.tick(Cut::MOST).total() * (1.0 + 1e-9)
}

proptest! {
    #[test]
    fn of_two_ticks_in_a_row_only_the_first_exceeds_the_budget(
        budget in 0.001..0.3,
        loads in prop::collection::vec((loads(), 2..40_usize), 1..6),
    ) {
        let mut governor = Governor::new(budget, Cut::MOST);
        for (load, ticks) in loads {
            let mut exceeded = false;
            for _ in 0..ticks {
                let spent = load.tick(governor.cut());
                let exceeds = is_over(&governor, &spent);
                prop_assert!(!(exceeded && exceeds) || is_least(load, governor.cut()), "{governor:?} {spent:?}");
                governor.tick(&spent);
                // A load that does not fit at all is said to be one.
                let least = load.tick(Cut::MOST);
                prop_assert_eq!(governor.is_over(), exceeds && is_over(&governor, &least));
                exceeded = exceeds;
            }
        }
    }

    #[test]
    fn what_was_cut_comes_back_when_the_load_is_gone_and_not_before_it_was_calm(load in loads(), budget in 0.001..0.1) {
        let mut governor = Governor::new(budget, Cut::MOST);
        governor.tick(&load.tick(Cut::Nothing));
        let cut = governor.cut();
        let idle = Load { ns: [0.0; PARTS], cpu_ns: 0.0 };
        let calm = CALM_NS / TICK_NS;
        for tick in 1..=calm {
            prop_assert_eq!(governor.cut(), cut, "after {} ticks", tick);
            governor.tick(&idle.tick(governor.cut()));
        }
        prop_assert_eq!(governor.cut(), Cut::Nothing);
    }

    #[test]
    fn it_settles_within_the_budget_and_what_comes_back_is_cut_again_at_once(load in loads(), budget in 0.01..0.1) {
        let mut governor = Governor::new(budget, Cut::MOST);
        let (mut over, mut changes) = (0, 0);
        let minute = 60_000_000_000 / TICK_NS;
        for _ in 0..minute {
            let (before, spent) = (governor.cut(), load.tick(governor.cut()));
            over += u64::from(is_over(&governor, &spent) && !is_least(load, before));
            changes += u64::from(governor.tick(&spent) != before);
        }
        // Each return needs a calm time before it.
        let most = 1 + minute / (CALM_NS / TICK_NS);
        prop_assert!(over <= most && changes <= 2 * most, "{over} ticks over the budget, {changes} changes");
    }
}

#[test]
fn parts_are_cut_in_their_order() {
    let load = Load { ns: [10.0, 8.0, 6.0, 4.0, 2.0, 1.0].map(|ns| ns * 1e6), cpu_ns: 1e9 };
    let after = |budget| {
        let mut governor = Governor::new(budget, Cut::MOST);
        governor.tick(&load.tick(Cut::Nothing))
    };
    assert_eq!(after(0.032), Cut::Nothing);
    assert_eq!(after(0.030), Cut::ExactWindows);
    assert_eq!(after(0.019), Cut::HalfOfSamples);
    assert_eq!(after(0.015), Cut::Samples);
    assert_eq!(after(0.008), Cut::QueueMoves);
    assert_eq!(after(0.004), Cut::Plugins);
    assert_eq!(after(0.002), Cut::Phases);
    assert_eq!(after(0.0005), Cut::Phases);
    let mut slow = Governor::new(0.001, Cut::Samples);
    assert_eq!(slow.tick(&load.tick(Cut::Nothing)), Cut::Samples, "the kernel detaches slowly");
    let orders: Vec<_> = Cut::ALL.windows(2).map(|pair| pair[0] < pair[1]).collect();
    assert_eq!(orders, [true; Cut::ALL.len() - 1]);
    for part in Part::ALL {
        let kept: Vec<_> = Cut::ALL.iter().map(|cut| cut.keeps(*part)).collect();
        assert!(kept.is_sorted_by(|milder, harder| milder >= harder), "{part:?}: {kept:?}");
    }
}

#[test]
fn what_does_not_help_is_not_cut() {
    let mut governor = Governor::new(0.01, Cut::MOST);
    // A program of whose sites nothing may be cut.
    let load = Load { ns: [0.0, 0.0, 0.0, 0.0, 0.0, 5e7], cpu_ns: 1e9 };
    assert_eq!(governor.tick(&load.tick(Cut::Nothing)), Cut::Nothing);
    assert!(governor.is_over());
}

#[test]
fn phases_are_the_last_to_go_and_come_back_when_they_fit_well() {
    // Short attempts of 20 hits, of which 3 are always there, and plugins.
    let storm = Load { ns: [0.0, 0.0, 0.0, 2e7, 1.7e7, 3e6], cpu_ns: 5e8 };
    let mut governor = Governor::new(0.01, Cut::MOST);
    assert_eq!(governor.tick(&storm.tick(Cut::Nothing)), Cut::Phases);
    assert!(!governor.is_over(), "what is left fits");
    let calm = CALM_NS / TICK_NS;
    for _ in 0..2 * calm {
        assert_eq!(governor.tick(&storm.tick(governor.cut())), Cut::Phases, "the storm goes on");
    }
    // Attempts that are so rare that phases fit, and plugins do not.
    let some = Load { ns: storm.ns.map(|ns| ns / 7.0), ..storm };
    let after: Vec<_> = (0..calm).map(|_| governor.tick(&some.tick(governor.cut()))).collect();
    assert!(after[..after.len() - 1].iter().all(|cut| *cut == Cut::Phases), "{after:?}");
    assert_eq!(after.last(), Some(&Cut::Plugins));
}

#[test]
fn the_probes_of_an_idle_process_cost_too_little_to_be_cut() {
    let mut governor = Governor::new(0.02, Cut::MOST);
    let spent = Spent { ns: [0.0, 0.0, 0.0, 4e5, 5e5, 0.0], cpu_ns: 5e6, elapsed_ns: TICK_NS as f64 };
    assert_eq!(governor.tick(&spent), Cut::Nothing, "18 % of 1 % of a CPU");
    assert_eq!(governor.tick(&Spent { ns: [0.0, 0.0, 0.0, 9e5, 5e5, 0.0], ..spent }), Cut::Plugins);
}

const FILE: FileId = FileId { device: 1, inode: 2, bytes: 3, written: (4, 5) };
const OTHER: FileId = FileId { inode: 3, ..FILE };
const TRAPS: Traps = Traps { emulated_ns: 1_000, single_stepped_ns: 10_000, is_measured: true };

fn running(file: FileId, hits: Hits, cpu_ns: u64) -> Running {
    Running { file, hits, cpu_ns: HashMap::from([(42, cpu_ns)]) }
}

fn hits(attempts: u64, plugins: u64) -> Hits {
    let sites = vec![
        (Detail::Attempts, Class::Emulated, attempts),
        (Detail::Plugins, Class::SingleStepped, plugins),
        (Detail::Full, Class::Emulated, 0),
    ];
    Hits { sites, ..Hits::default() }
}

#[test]
fn a_hit_costs_what_its_class_and_the_measured_program_cost() {
    let mut governors = Governors::new(1.0, TRAPS, Cut::MOST);
    let before = Kernel { timed_hits: 10, timed_ns: 1, ..Kernel::default() };
    governors.tick(TICK_NS, before, vec![running(FILE, hits(500, 500), 7)]);
    assert_eq!(governors.totals().ns, [0.0; PARTS], "what was before the first tick is of none");
    let kernel = Kernel { timed_hits: 30, timed_ns: 40_001, walk_ns: 70_000, ..before };
    let walks = Hits { walks: 2, ..hits(600, 510) };
    governors.tick(TICK_NS, kernel, vec![running(FILE, walks, 1_000_007)]);
    let totals = governors.totals();
    assert_eq!(totals.program_ns, 2_000.0);
    assert_eq!(totals.ns, [0.0, 0.0, 70_000.0, 10.0 * 12_000.0, 0.0, 100.0 * 3_000.0]);
    assert_eq!(totals.cpu_ns, 1e6);
    assert!((totals.ratio - 0.49).abs() < 1e-9, "{}", totals.ratio);
}

#[test]
fn hits_that_were_lost_cost_as_much_and_those_of_one_process_are_no_other_one_s() {
    let mut governors = Governors::new(1.0, Traps { single_stepped_ns: 1_000, ..TRAPS }, Cut::MOST);
    let none = || vec![running(FILE, hits(0, 0), 0), running(OTHER, hits(0, 0), 0)];
    governors.tick(TICK_NS, Kernel { timed_hits: 8, timed_ns: 0, ..Kernel::default() }, none());
    let flood = Hits { lost: 900, ..hits(100, 0) };
    let kernel = Kernel { timed_hits: 16, lost: 20, ..Kernel::default() };
    governors.tick(TICK_NS, kernel, vec![running(FILE, hits(50, 50), 0), running(OTHER, flood, 0)]);
    // The other losses are shared by what was seen.
    assert_eq!(governors.totals().ns[Part::Attempts.index()].round(), (55.0 + 1_010.0) * 1_000.0);
    assert_eq!(governors.totals().ns[Part::Plugins.index()].round(), 55.0 * 1_000.0);
    // Of a tick in which all were lost, the hits are like those before.
    let flood = Hits { lost: 1_900, ..hits(100, 0) };
    governors.tick(TICK_NS, kernel, vec![running(FILE, hits(50, 50), 0), running(OTHER, flood, 0)]);
    assert_eq!(governors.totals().ns[Part::Attempts.index()].round(), (55.0 + 2_010.0) * 1_000.0);
}

/// Governors after so many ticks of half a second of CPU time each, the first of them with a window of 5 ms.
fn after_window(budget: f64, ticks: u64) -> Governors {
    let mut governors = Governors::new(budget, TRAPS, Cut::MOST);
    for tick in 0..=ticks {
        let windows_ns = if tick == 0 { 0 } else { 5_000_000 };
        let of_window = Hits { windows_ns, ..hits(0, 0) };
        governors.tick(TICK_NS, Kernel::default(), vec![running(FILE, of_window, tick * TICK_NS)]);
    }
    governors
}

#[test]
fn a_window_is_spread_over_time_by_the_budget_and_half_a_percent_at_most_and_then_comes_the_next_one() {
    // Half a percent of half a second is 2.5 ms.
    let rooms = [0, 1, 2, 3].map(|ticks| after_window(0.05, ticks).has_room_for_window(FILE));
    assert_eq!(rooms, [true, false, true, true]);
    let rooms = [4, 5].map(|ticks| after_window(0.02, ticks).has_room_for_window(FILE));
    assert_eq!(rooms, [false, true], "0.2 % of half a second is 1 ms");
    assert!(!after_window(0.99, 1).has_room_for_window(FILE), "half a percent, however large the budget is");
    assert!(after_window(1.0, 1).has_room_for_window(FILE), "nothing is limited");
    let ratios = [1, 2, 3].map(|ticks| (after_window(0.05, ticks).totals().ratio * 1e6).round());
    assert_eq!(ratios, [5_000.0, 5_000.0, 0.0]);
    assert_eq!(after_window(1.0, 1).totals().ratio, 0.01);
    let sums = [1, 2, 3].map(|ticks| after_window(0.05, ticks).totals().ns[Part::Windows.index()]);
    assert_eq!(sums, [2.5e6, 5e6, 5e6]);
}

#[test]
fn windows_are_cut_when_the_rest_leaves_no_room_for_them() {
    assert_eq!(after_window(0.001, 1).cut(FILE), Cut::Nothing, "they alone never exceed the budget");
    let mut governors = after_window(0.05, 1);
    // 24.9 ms of 500 ms, and 2.5 ms of the window.
    let seen = Hits { windows_ns: 5_000_000, ..hits(24_900, 0) };
    let kernel = Kernel { timed_hits: 8, timed_ns: 0, ..Kernel::default() };
    governors.tick(TICK_NS, kernel, vec![running(FILE, seen, 2 * TICK_NS)]);
    assert_eq!(governors.cut(FILE), Cut::ExactWindows);
    governors.stays(FILE, Cut::Nothing);
    assert_eq!(governors.cut(FILE), Cut::Nothing);
    governors.tick(TICK_NS, kernel, Vec::new());
    assert_eq!(governors.totals().cut, Cut::Nothing, "it has ended");
}

#[test]
fn names_in_traces_are_those_of_recordings() {
    for cut in Cut::ALL {
        assert_eq!(serde_json::to_value(cut).expect("a name"), cut.name());
    }
}
