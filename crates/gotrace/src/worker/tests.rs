//! Tests of a worker without a kernel: plan and sites are set directly.

use std::sync::{Arc, Mutex};

use wire::{MAX_WORDS, Site};

use super::*;
use crate::{
    fixture::{Function, Kitchen, Value},
    plan::{Reading, Role, Slot},
    values::Values,
};

const SITE: u32 = 5;
const TARGET: u32 = 3;
const FILE: FileId = FileId { device: 1, inode: 2, bytes: 1, written: (0, 0) };

type Seen = Arc<Mutex<Vec<Line<'static, Kitchen>>>>;

fn own(line: Line<'_, Kitchen>) -> Line<'static, Kitchen> {
    match line {
        Line::Header(header) => Line::Header(header),
        Line::Found(found) => Line::Found(Cow::Owned(found.into_owned())),
        Line::Clocks(clocks) => Line::Clocks(clocks),
        Line::Event(event) => Line::Event(Cow::Owned(event.into_owned())),
        Line::Sample(sample) => Line::Sample(Cow::Owned(sample.into_owned())),
        Line::Window(window) => Line::Window(Cow::Owned(window.into_owned())),
        Line::Cut { target, time_ns, cut } => Line::Cut { target, time_ns, cut },
        Line::Gone { target } => Line::Gone { target },
        Line::End(end) => Line::End(end),
    }
}

/// A worker whose site reads a name, and the lines that its observer receives. Its output is the number of the finished
/// attempt.
fn worker(role: Role) -> (ProgramWorker<Kitchen, u64>, Seen) {
    let seen = Seen::default();
    let observed = Arc::clone(&seen);
    let mut worker = ProgramWorker::<Kitchen, u64>::new(Detail::Full, |event| event.goroutine)
        .observed(Box::new(move |line| observed.lock().expect("no thread panics").push(own(line))));
    let site = PlannedSite {
        function: Function::Serve,
        role,
        detail: Detail::Full,
        address: 0,
        file_offset: 0,
        class: Class::Emulated,
        stack_depth: 0,
        symbol: String::new(),
        called_by: None,
        spec: Site::default(),
        values: vec![(Reading::Value(Value::Cook), Slot::Word(0))],
        list: None,
    };
    worker.decoder.add(SITE, &site);
    let named = Named {
        name: "Anna".into(),
        typ: String::new(),
        extension_points: Vec::new(),
        module: None,
        descriptor: 0x1000,
        constant: None,
    };
    let planned = Planned {
        sites: Vec::new(),
        names: vec![named],
        errors: Vec::new(),
        alike: Vec::new(),
        attached: None,
        kinds: Vec::new(),
        cut: Cut::Nothing,
        left_out: Cut::Nothing,
        most: Cut::MOST,
        windows_ns: 0,
        codes: Arc::default(),
        table: None,
        timing: None,
        timed: None,
    };
    worker.executables.insert(FILE, planned);
    (worker, seen)
}

/// A record of a hit, with one word.
fn record(site: u32, goroutine: u64, time_ns: u64, word: u64) -> Vec<u8> {
    let mut words = [0; MAX_WORDS];
    words[0] = word;
    let longs = [time_ns, goroutine, 0].into_iter();
    let mut record: Vec<u8> = longs.flat_map(u64::to_ne_bytes).collect();
    record.extend([site, TARGET, 0, 0].into_iter().flat_map(u32::to_ne_bytes));
    record.extend([0].into_iter().chain(words).flat_map(u64::to_ne_bytes));
    record
}

fn found() -> Found {
    Found { target: TARGET, pid: 42, ..Found::default() }
}

fn clocks(monotonic_ns: u64) -> Clocks {
    Clocks { monotonic_ns, unix_ns_at_zero: 9 }
}

#[test]
fn a_record_of_a_foreign_site_is_ignored() {
    let (mut worker, seen) = worker(Role::Ret);
    for site in [0, SITE - 1, SITE + 1, wire::NO_SITE - 1] {
        assert_eq!(worker.take(site, &record(site, 1, 7, 0)), None);
        assert_eq!(worker.take(site, &[]), None);
    }
    assert_eq!(seen.lock().expect("no thread panics").len(), 0);
    assert_eq!((worker.account(), worker.take_finished()), (Account::default(), (vec![], Clocks::default())));
}

#[test]
fn a_record_of_its_own_is_observed_and_goes_to_the_assembler() {
    let (mut worker, seen) = worker(Role::Ret);
    worker.begin(FILE, 0x40_0000, &found());
    worker.look(clocks(5));
    assert_eq!(worker.take(SITE, &record(SITE, 11, 7, 0x40_1000)), Some(Ok(())));
    assert_eq!(worker.take_finished(), (vec![11], clocks(5)));
    assert_eq!(worker.take_finished(), (vec![], clocks(5)));
    assert_eq!(worker.account(), Account { events: 1, in_attempts: 1, ..Account::default() });
    assert_eq!(worker.counts()[0].total, 1);
    let seen = seen.lock().expect("no thread panics");
    let [Line::Found(found), Line::Clocks(at), Line::Event(event)] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!((found.pid, *at, event.function), (42, clocks(5), Function::Serve));
    assert_eq!(event.values, Values::default().with(Value::Cook, Arc::<str>::from("Anna")));
}

#[test]
fn a_broken_record_of_its_own_is_an_error_and_not_an_event() {
    let (mut worker, seen) = worker(Role::Ret);
    assert_eq!(worker.take(SITE, &[0; 71]), Some(Err(Undecodable::Length(71))));
    assert_eq!((worker.account(), seen.lock().expect("no thread panics").len()), (Account::default(), 0));
}

#[test]
fn the_end_of_a_process_drops_its_names_and_open_calls() {
    let (mut worker, seen) = worker(Role::Entry);
    worker.begin(FILE, 0, &found());
    let name = |worker: &mut ProgramWorker<Kitchen, u64>| {
        worker
            .take(SITE, &record(SITE, 1, 7, 0x1000))
            .expect("the site is its own")
            .expect("it is well-formed");
        let seen = seen.lock().expect("no thread panics");
        let Some(Line::Event(event)) = seen.last() else { panic!("{seen:?}") };
        event.values.clone().take_name(Value::Cook)
    };
    assert_eq!(name(&mut worker).as_deref(), Some("Anna"));
    assert_eq!(worker.account().open(), 1);
    worker.end(TARGET);
    assert_eq!((worker.account().open(), worker.stats().orphan_calls), (0, 1));
    assert_eq!(seen.lock().expect("no thread panics").last(), Some(&Line::Gone { target: TARGET }));
    assert_eq!(name(&mut worker), None);
}

#[test]
fn a_process_of_an_executable_that_is_not_planned_does_not_begin() {
    let (mut worker, seen) = worker(Role::Entry);
    worker.begin(FileId { inode: 3, ..FILE }, 0, &found());
    assert_eq!(seen.lock().expect("no thread panics").len(), 0);
}

#[test]
fn a_tick_expires_old_attempts() {
    let (mut worker, _) = worker(Role::Entry);
    assert_eq!(worker.take(SITE, &record(SITE, 1, 7, 0)), Some(Ok(())));
    worker.look(clocks(7));
    assert_eq!(worker.account().open(), 1);
    worker.look(clocks(8));
    assert_eq!((worker.account().open(), worker.stats().orphan_calls), (0, 1));
}

#[test]
fn at_the_end_the_losses_and_the_figures_are_recorded() {
    let (mut worker, seen) = worker(Role::Ret);
    assert_eq!(worker.take(SITE, &record(SITE, 1, 7, 0)), Some(Ok(())));
    let losses = BTreeMap::from([("ring_full".to_owned(), 4)]);
    worker.finish(losses.clone());
    let account = Account { events: 1, in_attempts: 1, ..Account::default() };
    let end = End { losses, stats: Stats::default(), account, left_out: 0 };
    assert_eq!(seen.lock().expect("no thread panics").last(), Some(&Line::End(end)));
}

#[test]
fn a_worker_needs_no_observer_and_reports_its_programs_counters() {
    let mut worker = ProgramWorker::<Kitchen, u64>::new(Detail::Phases, |event| event.goroutine);
    worker.look(clocks(1));
    worker.end(TARGET);
    worker.finish(BTreeMap::new());
    let worker: &dyn Worker<u64> = &worker;
    assert_eq!((worker.name(), worker.planner().markers), (Kitchen::NAME, Kitchen::MARKERS));
    assert_eq!(worker.counters(), Kitchen::COUNTERS);
    assert_eq!(worker.file_names(), Kitchen::FILE_NAMES);
}

#[test]
fn plans_of_two_programs_for_an_executable_add_up() {
    let missing =
        |function: &str| Missing { function: function.into(), why: String::new(), without: String::new() };
    let one = Summary {
        identity: Identity { go_version: "go1.26.5".into(), ..Identity::default() },
        programs: vec!["one"],
        emulated: 3,
        single_stepped: 10,
        missing: vec![missing("a")],
    };
    let other = Summary {
        programs: vec!["two", "three"],
        emulated: 4,
        single_stepped: 200,
        missing: vec![missing("b")],
        ..one.clone()
    };
    assert_eq!((one.sites(), other.sites()), (13, 204));
    let both = one.with(other);
    let Summary { identity, programs, emulated, single_stepped, missing: of_both } = &both;
    assert_eq!(
        (identity.go_version.as_str(), programs.as_slice()),
        ("go1.26.5", &["one", "two", "three"][..])
    );
    assert_eq!((*emulated, *single_stepped, both.sites()), (7, 210, 217));
    assert_eq!(of_both, &[missing("a"), missing("b")]);
}

/// The cuts that a process's assembler gets, while these apply to the executable.
fn effective(left_out: Cut, most: Cut, cuts: &[Cut]) -> Vec<Cut> {
    let (mut worker, seen) = worker(Role::Ret);
    let planned = worker.executables.get_mut(&FILE).expect("it is planned");
    (planned.left_out, planned.most) = (left_out, most);
    worker.begin(FILE, 0, &found());
    cuts.iter().for_each(|cut| worker.say_cut(FILE, 7, *cut));
    let seen = seen.lock().expect("no thread panics");
    let cut = |line: &Line<'_, Kitchen>| if let Line::Cut { cut, .. } = line { Some(*cut) } else { None };
    seen.iter().filter_map(cut).collect()
}

#[test]
fn a_program_gets_no_cut_that_it_cannot_do_without() {
    let all = [Cut::Phases, Cut::Samples, Cut::Nothing];
    assert_eq!(effective(Cut::Nothing, Cut::MOST, &all), all);
    assert_eq!(effective(Cut::Nothing, Cut::Plugins, &all), [Cut::Plugins, Cut::Samples, Cut::Nothing]);
}

#[test]
fn what_the_level_of_detail_leaves_out_of_attempts_is_cut() {
    assert_eq!(effective(Cut::Phases, Cut::MOST, &[Cut::Samples, Cut::Nothing]), [Cut::Phases; 3]);
    assert_eq!(effective(Cut::Phases, Cut::Plugins, &[]), [Cut::Plugins]);
}
