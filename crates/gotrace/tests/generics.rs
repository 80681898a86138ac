//! Functions that an executable has once for each type: where they are probed, and what is read of a value of whatever type.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
};

use goexe::{Class, Executable, Functions, Types};
use gotrace::{
    Detail, Event, Plan, Role, Values,
    account::{Books, Counter},
    decode::Decoder,
    governor::Cut,
    plan::{Begin, End, Field, Held, Interface, PlannedSite, Reading, Row, SeenAs, Signature, Slot, Want},
    program::{Assemble, Function as _, Metric, Named, Program, SpelledOut},
};
use wire::{
    FIRST, FIRST_AND_LAST, LINK, READ_TEXT, READ_TEXT_IN_REGISTERS, READ_WORD, Read, STACK_POINTER, Site,
    TextHit,
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts;

gotrace::values! {
    /// What is read.
    enum Value;

    /// What the receiver's gauge is labelled with.
    Queue: Text,
    /// The first word of the argument.
    Word: Number,
    /// The strings of the argument.
    Key: Texts,
    /// Whether there is an error.
    Failed: Number,
    /// When the call began.
    Started: Number,
    /// Whether a panic ended it.
    Panics: Flag,
}

const METRIC: Metric<Value> = Metric {
    taken: "main.since",
    labelled: "main.absent",
    started: Value::Started,
    panics: Value::Panics,
    result: Value::Failed,
    results: &[],
};

const HELD: &[Held] = &[Held("string", 1), Held("main.boxed", 2), Held("main.absent", 3)];
const QUEUE: Want<Value> = Want {
    value: Value::Queue,
    of: &["*main.counts[...]"],
    path: &["depth", "(main.gauge)", "labels", "*", "value", "*"],
    seen_as: SeenAs::Receiver,
};
const WORD: Want<Value> = Want { value: Value::Word, of: &[], path: &[], seen_as: SeenAs::Word };
const KEY: Want<Value> = Want { value: Value::Key, seen_as: SeenAs::Strings(HELD), ..WORD };
const WORKER: Interface = Interface::In(Field("main", "worker[main.boxed]", "do"));
const OF_WORKER: Want<Value> = Want { of: &["*main.worker[main.boxed]"], path: &["name"], ..QUEUE };
const FAILED: Want<Value> =
    Want { value: Value::Failed, of: &["error"], path: &[], seen_as: SeenAs::Failure };
const ROW: Row<Value> = Row {
    symbols: &["main.(*counts[...]).add"],
    signature: Signature::Unused,
    begin: Begin::Entry,
    at_entry: &[QUEUE],
    end: End::Unused,
    at_end: &[],
    since: None,
    without: "",
};

const GATE: Row<Value> = Row {
    signature: Signature::Declared(&["string", "*main.reference"]),
    at_entry: &[Want {
        value: Value::Word,
        of: &["*main.reference"],
        path: &["kind"],
        seen_as: SeenAs::Declared,
    }],
    end: End::MetricWithArguments(0),
    ..ROW
};

gotrace::functions! {
    /// What is probed.
    enum Function: (), Value;

    /// There is one for each type.
    Add { detail: Phases, about: (), rows: [
        Row { signature: Signature::TypeArguments, at_entry: &[QUEUE, WORD, KEY], ..ROW },
        Row {
            symbols: &["main.(*anyCounts).add"],
            signature: Signature::Declared(&["interface {}"]),
            at_entry: &[WORD, KEY],
            ..ROW
        },
        ROW,
    ] }
    /// What was put is seen when it is taken.
    Put { detail: Phases, about: (), rows: [
        Row {
            symbols: &["main.(*counts[...]).put"],
            signature: Signature::TypeArguments,
            begin: Begin::UnlessTiming("take", "seconds"),
            at_entry: &[WORD, KEY],
            ..ROW
        },
        Row { symbols: &["main.(*counts[...]).put"], at_entry: &[], ..ROW },
    ] }
    /// It takes the time.
    Take { detail: Phases, about: (), rows: [
        Row {
            symbols: &["main.(*counts[...]).take"],
            signature: Signature::TypeArguments,
            begin: Begin::Timing("seconds"),
            at_entry: &[QUEUE, WORD, KEY],
            ..ROW
        },
        Row { symbols: &["main.(*counts[...]).take"], at_entry: &[QUEUE], ..ROW },
    ] }
    /// The same without type arguments.
    PlainTake { detail: Phases, about: (), rows: [Row {
        symbols: &["main.(*anyCounts).take"],
        signature: Signature::Declared(&["interface {}"]),
        begin: Begin::Timing("seconds"),
        at_entry: &[WORD, KEY],
        ..ROW
    }] }
    /// What it takes is not there any more when it takes the time.
    OtherPut { detail: Phases, about: (), rows: [Row {
        symbols: &["main.(*others[...]).put"],
        signature: Signature::TypeArguments,
        begin: Begin::UnlessTiming("take", "seconds"),
        at_entry: &[KEY],
        ..ROW
    }] }
    /// The same.
    OtherTake { detail: Phases, about: (), rows: [Row {
        symbols: &["main.(*others[...]).take"],
        signature: Signature::TypeArguments,
        begin: Begin::Timing("seconds"),
        at_entry: &[KEY],
        ..ROW
    }] }
    /// One of the callers has the time at which it began.
    Limit { detail: Phases, about: (), rows: [Row {
        symbols: &["main.(*client).limit"],
        signature: Signature::Declared(&["string", "string"]),
        begin: Begin::EntrySince("main.(*client).request", "time.Now"),
        at_entry: &[Want { of: &["*main.client"], path: &["name"], ..QUEUE }],
        ..ROW
    }] }
    /// The other caller does not keep it.
    Unlimited { detail: Phases, about: (), rows: [Row {
        symbols: &["main.(*client).limit"],
        begin: Begin::EntrySince("main.(*client).again", "time.Now"),
        at_entry: &[],
        ..ROW
    }] }
    /// A closure that it defers takes the time.
    Pass { detail: Phases, about: (), rows: [Row { symbols: &["main.(*gate).pass"], ..GATE }] }
    /// The same, and its parameter is not there any more then.
    Close { detail: Phases, about: (), rows: [Row { symbols: &["main.(*gate).close"], ..GATE }] }
    /// There is one.
    Plain { detail: Phases, about: (), rows: [Row {
        symbols: &["main.(*counts[...]).subtract", "main.(*anyCounts).add"],
        signature: Signature::Declared(&["interface {}"]),
        at_entry: &[WORD, KEY],
        ..ROW
    }] }
    /// There is one for each shape, of which a row names one.
    Work { detail: Phases, about: (), rows: [
        Row {
            symbols: &["main.(*worker[go.shape.struct { main.namespace string; main.name string }]).work"],
            signature: Signature::Method(WORKER, "work"),
            at_entry: &[OF_WORKER, Want { of: &["main.boxed"], seen_as: SeenAs::Strings(&[]), ..KEY }],
            end: End::Return,
            at_end: &[FAILED],
            ..ROW
        },
        Row {
            symbols: &["main.(*worker[go.shape...]).work"],
            signature: Signature::ResultsOf(WORKER, "work"),
            at_entry: &[OF_WORKER],
            end: End::Return,
            at_end: &[FAILED],
            ..ROW
        },
    ] }
    /// Its shape has other arguments.
    Misread { detail: Phases, about: (), rows: [Row {
        symbols: &["main.(*worker[go.shape.int]).work"],
        signature: Signature::Method(WORKER, "work"),
        at_entry: &[OF_WORKER],
        ..ROW
    }] }
}

/// Without the rows that read no key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Strict;

#[derive(Debug, Default)]
struct Nothing(Books<()>);

impl<P: Program> Assemble<P> for Nothing {
    type Output = ();

    fn on(&mut self, _: Event<P>) {}
    fn expire(&mut self, _: u64) {}
    fn exit(&mut self, _: u32) {}
    fn books(&self) -> &Books<()> {
        &self.0
    }
    fn books_mut(&mut self) -> &mut Books<()> {
        &mut self.0
    }
}

/// Implements a program whose rows of each function are the first so many.
macro_rules! program {
    ($program:ident, $rows:expr) => {
        impl Program for $program {
            const NAME: &'static str = "counts";
            const MARKERS: &'static [&'static str] = &["main.(*anyCounts).add"];
            const FILE_NAMES: &'static [&'static str] = &[];
            const CALLERS: &'static [&'static str] =
                &["main.work[go.shape", "main.(*client)", "main.(*gate)"];
            const CALLS_INDIRECTLY: &'static str = "main";
            const METRIC: Option<Metric<Value>> = Some(METRIC);
            const QUIET: &'static [(Value, &'static [u64])] = &[];
            const SPELLED_OUT: SpelledOut = SpelledOut { interfaces: &[], structs: &[] };
            const COUNTERS: &'static [Counter] = &[];

            type Function = Function;
            type Value = Value;
            type Assembler = Nothing;

            fn rows(function: Function) -> &'static [Row<Value>] {
                &function.rows()[..$rows.min(function.rows().len())]
            }
            fn names(
                _: &Executable<'_>,
                _: &Functions<'_>,
                _: &Types<'_>,
            ) -> Result<Vec<Named>, goexe::Error> {
                Ok(Vec::new())
            }
            fn redact(_: &mut Values<Value>, _: &mut dyn FnMut(&'static str, &mut String)) {}
        }
    };
}

program!(Counts, 3);
program!(Strict, 1);

/// Builds the program, stripped; nothing, with a word why, where there is no Go.
fn built(architecture: &str) -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("generics-{architecture}"));
    let mut go = Command::new("go");
    go.args(["build", "-trimpath", "-ldflags=-s -w", "-o"]).arg(&path).arg(".");
    go.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixture"));
    go.envs([("CGO_ENABLED", "0"), ("GOFLAGS", "-mod=mod"), ("GOARCH", architecture)]);
    match go.status() {
        Ok(status) => assert!(status.success(), "the program does not build: {status}"),
        Err(error) => {
            eprintln!("skipped: the program needs Go, and `go` does not start: {error}");
            return None;
        }
    }
    Some(path)
}

fn plan(architecture: &str) -> Option<Plan<Counts>> {
    let data = std::fs::read(built(architecture)?).expect("it was just built");
    Some(Plan::of(&data).expect("it has the marker"))
}

/// What the sites of a function read, as the names of the readings and the reads.
fn reads(plan: &Plan<Counts>, function: Function) -> BTreeMap<String, Vec<(String, Read)>> {
    let of = |site: &PlannedSite<Counts>| {
        let names = site.values.iter().map(|(reading, _)| reading.name());
        names.zip(site.spec.reads).map(|(name, read)| (name, Read { slot: 0, ..read })).collect()
    };
    let sites = plan.sites.iter().filter(|site| site.function == function);
    sites.map(|site| (site.symbol.clone(), of(site))).collect()
}

fn queue() -> (String, Read) {
    // The gauge that the second field holds, its second field's first element, what its second field points to.
    (
        "queue".to_owned(),
        Read { base: 0, kind: READ_TEXT, steps: 4, offsets: [16, 8, 0, 8], ..Read::default() },
    )
}

fn word(base: u8) -> (String, Read) {
    ("word".to_owned(), Read { base, kind: READ_WORD, ..Read::default() })
}

fn text(place: u8, base: u8) -> (String, Read) {
    (format!("key[{place}]"), Read { base, kind: READ_TEXT_IN_REGISTERS, ..Read::default() })
}

fn behind(place: u8, base: u8, last: u32) -> (String, Read) {
    (format!("key[{place}]"), Read { base, kind: READ_TEXT, last, ..Read::default() })
}

fn any() -> Vec<(String, Read)> {
    let typ = ("type of key".to_owned(), Read { base: 1, kind: READ_WORD, ..Read::default() });
    vec![word(2), typ, behind(0, 2, 0), behind(1, 2, 16)]
}

#[test]
fn sites_of_a_program_that_says_nothing_of_cuts_are_never_cut() {
    let Some(plan) = plan("amd64") else { return };
    assert_eq!(plan.most, Cut::Plugins);
    assert!(plan.sites.iter().all(|site| site.detail == Detail::Attempts));
    let sites = plan.sites.len();
    assert_eq!(plan.with_detail(Detail::Attempts).sites.len(), sites, "nor are they left out");
}

#[test]
fn all_instantiations_are_probed_and_read_as_their_types_say() {
    for architecture in ["amd64", "arm64"] {
        let Some(plan) = plan(architecture) else { return };
        // Ten words: more than the registers of amd64.
        let large = if architecture == "amd64" {
            let mut four = word(STACK_POINTER);
            (four.1.steps, four.1.offsets[0]) = (1, 8 + 48);
            vec![
                four,
                behind(0, STACK_POINTER, 8),
                behind(1, STACK_POINTER, 24),
                behind(2, STACK_POINTER, 40),
            ]
        } else {
            vec![word(7), text(0, 1), text(1, 3), text(2, 5)]
        };
        let expected = [
            ("string", vec![text(0, 1)]),
            ("main.name", vec![text(0, 1)]),
            ("int", vec![word(1)]),
            ("*main.reference", vec![word(1)]),
            ("main.reference", vec![word(1), text(0, 2), text(1, 4)]),
            ("main.nested", vec![word(1), text(0, 2), text(1, 4), text(2, 6)]),
            ("main.boxed", vec![text(0, 1), text(1, 3)]),
            ("main.large", large),
            // The row without the key: an array, and more strings than a record has.
            ("main.listed", Vec::new()),
            ("main.many", Vec::new()),
            ("interface {}", any()),
        ];
        let expected: BTreeMap<String, Vec<_>> = expected
            .into_iter()
            .map(|(typ, reads)| (format!("main.(*counts[{typ}]).add"), [vec![queue()], reads].concat()))
            .collect();
        assert_eq!(reads(&plan, Function::Add), expected, "{architecture}");
        let missing: Vec<_> = plan.missing.iter().map(|missing| &*missing.function).collect();
        assert_eq!(missing, ["unlimited", "misread"]);
    }
}

#[test]
fn an_instantiation_by_shape_is_probed_where_it_is_called_with_a_dictionary() {
    for architecture in ["amd64", "arm64"] {
        let Some(plan) = plan(architecture) else { return };
        let mut sites = BTreeMap::<_, Vec<_>>::new();
        for site in plan.sites.iter().filter(|site| site.function == Function::Work) {
            let names = site.values.iter().map(|(reading, _)| reading.name());
            let read = names.zip(site.spec.reads).map(|(name, read)| (name, read.base)).collect::<Vec<_>>();
            sites.entry(site.symbol.clone()).or_default().push((site.role, read));
        }
        let read = |name: &str, base| (name.to_owned(), base);
        // Receiver, dictionary, the queue's two words, then the item.
        let entry = |rest: &[_]| (Role::Entry, [&[read("queue", 0)], rest].concat());
        let end = (Role::ReturnSite, vec![read("failed of an error", 1)]);
        let function = |shape: &str| format!("main.(*worker[go.shape.{shape}]).work");
        let boxed = function("struct { main.namespace string; main.name string }");
        let caller = |shape: &str| format!("main.work[go.shape.{shape}]");
        let expected = BTreeMap::from([
            (boxed, vec![entry(&[read("key[0]", 4), read("key[1]", 6)])]),
            (function("int"), vec![entry(&[])]),
            (caller("struct { main.namespace string; main.name string }"), vec![end.clone()]),
            (caller("int"), vec![end]),
        ]);
        assert_eq!(sites, expected, "{architecture}");
    }
}

/// What a site reads of an item on the stack: how far behind it, or, of what an interface holds, behind its second word.
fn of_stack(site: &PlannedSite<Counts>, from: usize) -> Vec<(String, Role, i64)> {
    let reads = site.values.iter().zip(site.spec.reads).skip(from);
    let place = |read: Read| match (read.base, read.steps) {
        (STACK_POINTER, 0) => i64::from(read.last),
        (STACK_POINTER, _) => i64::from(read.offsets[0]),
        (register, _) => -i64::from(register),
    };
    let behind = |read| if place(read) < 0 { place(read) } else { place(read) - site.stack_depth };
    reads.map(|((reading, _), read)| (reading.name(), site.role, behind(read))).collect()
}

#[test]
fn where_a_function_takes_a_time_its_parameter_is_read_on_the_stack() {
    for architecture in ["amd64", "arm64"] {
        let Some(plan) = plan(architecture) else { return };
        let of = |function, from| -> BTreeMap<String, Vec<_>> {
            let sites = plan.sites.iter().filter(|site| site.function == function);
            sites.map(|site| (site.symbol.clone(), of_stack(site, from))).collect()
        };
        let own = |name: &str, place| (name.to_owned(), Role::Metric, place);
        // Behind receiver and dictionary in the caller's frame; the time is behind these two in registers.
        let start = [own("start", -2), own("start (monotonic)", -3)];
        let timing = |shape: &str, reads: &[_]| {
            (format!("main.(*counts[go.shape.{shape}]).take"), [reads, &start[..]].concat())
        };
        let reference = "struct { main.kind int; main.namespace string; main.name main.name }";
        let mut expected = BTreeMap::from([
            // Of two types.
            timing("string", &[own("key[0]", 24)]),
            timing("int", &[own("word", 24)]),
            timing("*main.reference", &[own("word", 24)]),
            timing(reference, &[own("word", 24), own("key[0]", 32), own("key[1]", 48)]),
            timing(
                "struct { main.namespace string; main.name string }",
                &[own("key[0]", 24), own("key[1]", 40)],
            ),
            timing(
                "interface {}",
                &[own("word", 32), own("type of key", 24), own("key[0]", 32), own("key[1]", 32)],
            ),
        ]);
        let mut sites = of(Function::Take, 1);
        let entries: Vec<_> =
            sites.extract_if(.., |_, reads| reads.is_empty()).map(|(symbol, _)| symbol).collect();
        let is_known = |symbol: &str| expected.contains_key(symbol);
        sites.retain(|symbol, _| is_known(symbol));
        assert_eq!(sites, std::mem::take(&mut expected), "{architecture}");
        // These cannot be read anywhere.
        let unreadable = ["listed", "many"].map(|typ| format!("main.(*counts[main.{typ}])"));
        assert_eq!(entries, unreadable.map(|typ| format!("{typ}.take")));
        // Of more than ten parts of an argument, the executable does not say where they are.
        let put = ["large", "listed", "many"].map(|typ| format!("main.(*counts[main.{typ}]).put"));
        assert_eq!(of(Function::Put, 0).into_keys().collect::<Vec<_>>(), put);
        let plain = [own("word", 24), own("type of key", 16), own("key[0]", 24), own("key[1]", 24)];
        let start = [own("start", -1), own("start (monotonic)", -2)];
        let plain = BTreeMap::from([("main.(*anyCounts).take".to_owned(), [&plain[..], &start].concat())]);
        assert_eq!(of(Function::PlainTake, 0), plain, "{architecture}");
        // What is timed ends when the hit is over, and what follows has begun before it.
        for site in plan.sites.iter().filter(|site| site.role == Role::Metric) {
            let is_end = matches!(site.function, Function::Pass | Function::Close);
            assert_eq!(site.spec.time, if is_end { FIRST } else { FIRST_AND_LAST }, "{}", site.symbol);
        }
    }
}

#[test]
fn the_entry_of_a_function_shows_since_when_its_caller_runs_if_that_keeps_the_time() {
    let both = [("amd64", Class::Emulated, (STACK_POINTER, 1)), ("arm64", Class::SingleStepped, (LINK, 0))];
    for (architecture, class, returns) in both {
        let Some(plan) = plan(architecture) else { return };
        let mut sites = plan.sites.iter().filter(|site| site.function == Function::Limit);
        let (Some(site), None) = (sites.next(), sites.next()) else { panic!("there is one site") };
        let seen = (&*site.symbol, site.role, site.class, site.stack_depth);
        assert_eq!(seen, ("main.(*client).limit", Role::Entry, class, 0), "{architecture}");
        let names: Vec<_> = site.values.iter().map(|(reading, _)| reading.name()).collect();
        assert_eq!(names, ["queue", "start", "start (monotonic)", "return address"], "{architecture}");
        let of = |read: Read| ((read.base, read.steps), read.offsets[0]);
        let [_, wall, monotonic, address, ..] = site.spec.reads.map(of);
        assert_eq!((wall.0, monotonic), ((STACK_POINTER, 1), (wall.0, wall.1 + 8)), "{architecture}");
        assert!(wall.1 >= 8, "it is above the return address, or what is in its place");
        assert_eq!(address, (returns, 0), "{architecture}");
        assert!(site.called_by.as_ref().is_some_and(|caller| !caller.contains(&site.address)));
        let missing = plan.missing.iter().find(|missing| missing.function == "unlimited");
        let why = missing.map(|missing| &*missing.why);
        assert_eq!(why, Some("`main.(*client).again` does not keep when it began"), "{architecture}");
    }
}

#[test]
fn a_closure_that_takes_the_time_sees_the_parameters_that_its_function_keeps() {
    for architecture in ["amd64", "arm64"] {
        let Some(plan) = plan(architecture) else { return };
        let of = |function| {
            let sites = plan.sites.iter().filter(move |site| site.function == function);
            sites.map(|site| (site.role, site.symbol.as_str())).collect::<Vec<_>>()
        };
        assert_eq!(of(Function::Pass), [(Role::Metric, "main.(*gate).pass.func1")], "{architecture}");
        let both = [(Role::Metric, "main.(*gate).close.func1"), (Role::Entry, "main.(*gate).close")];
        assert_eq!(of(Function::Close), both, "{architecture}");
        let site = plan.sites.iter().find(|site| site.function == Function::Pass).unwrap();
        let names: Vec<_> = site.values.iter().map(|(reading, _)| reading.name()).collect();
        assert_eq!(names, ["start", "start (monotonic)", "word", "return address"], "{architecture}");
        // Two frames away: the pointer, and what it points to.
        let word = site.spec.reads[2];
        assert_eq!((word.base, word.steps), (STACK_POINTER, 2), "{architecture}");
    }
}

#[test]
fn where_a_parameter_is_not_kept_calls_are_seen_at_their_entry() {
    let Some(plan) = plan("amd64") else { return };
    for (function, method) in [(Function::OtherPut, "put"), (Function::OtherTake, "take")] {
        let symbol = format!("main.(*others[string]).{method}");
        assert_eq!(reads(&plan, function), BTreeMap::from([(symbol, vec![text(0, 1)])]));
    }
}

#[test]
fn a_symbol_without_type_arguments_is_one_function() {
    let Some(plan) = plan("amd64") else { return };
    assert_eq!(reads(&plan, Function::Plain), BTreeMap::from([("main.(*anyCounts).add".to_owned(), any())]));
}

#[test]
fn an_instantiation_that_no_row_can_follow_is_missing() {
    let Some(plan) = plan("amd64") else { return };
    let Some(path) = built("amd64") else { return };
    let data = std::fs::read(path).expect("it was just built");
    let strict = Plan::<Strict>::of(&data).expect("it has the marker");
    let sites = plan.sites.iter().filter(|site| site.function == Function::Add).count();
    let followed = strict.sites.iter().filter(|site| site.function == Function::Add).count();
    assert_eq!(followed, sites - 2);
    let missing: Vec<_> = strict.missing.iter().map(|missing| &*missing.function).collect();
    assert_eq!(missing, ["add", "put", "take", "unlimited", "misread"]);
    let mut reasons: Vec<_> = strict.missing[0].why.split("; ").collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["`[2]string` is an array", "`main.many` has 5 strings"]);
}

/// A hit at a site that reads what an interface holds: the type's address, and strings, of which some could not be read.
fn decoded(typ: u64, texts: [&str; 2], faults: u32) -> Values<Value> {
    let place = |place| (Reading::TextAt(Value::Key, place), Slot::Text(place.into()));
    let site = PlannedSite {
        function: Function::Add,
        role: Role::Entry,
        detail: Detail::Full,
        address: 0,
        file_offset: 0,
        class: Class::Emulated,
        stack_depth: 0,
        symbol: String::new(),
        called_by: None,
        spec: Site::default(),
        values: vec![(Reading::Holds(Value::Key, HELD), Slot::Word(0)), place(0), place(1)],
        list: None,
    };
    let mut decoder = Decoder::<Counts>::default();
    decoder.add(7, &site);
    decoder.add_errors(3, &[(0x100, "string".to_owned()), (0x200, "main.boxed".to_owned())], 0x1000);
    let mut record = vec![0; size_of::<TextHit>()];
    let mut put = |at: usize, bytes: &[u8]| record[at..at + bytes.len()].copy_from_slice(bytes);
    put(24, &7_u32.to_ne_bytes());
    put(28, &3_u32.to_ne_bytes());
    put(32, &faults.to_ne_bytes());
    put(48, &typ.to_ne_bytes());
    for (place, text) in texts.into_iter().enumerate() {
        put(size_of::<wire::Hit>() + 4 * place, &(text.len() as u32).to_ne_bytes());
        put(size_of::<wire::Hit>() + 4 * wire::MAX_TEXTS + wire::TEXT_LEN * place, text.as_bytes());
    }
    decoder.decode(&record).expect("it is well-formed").values
}

#[test]
fn an_interface_has_the_strings_of_what_it_holds() {
    let key = |typ, faults| decoded(typ, ["a", "b"], faults).take_texts(Value::Key);
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(key(0x1100, 0), [text("a")]);
    assert_eq!(key(0x1200, 0), [text("a"), text("b")]);
    // Another type, or none.
    assert_eq!(key(0x1300, 0), []);
    assert_eq!(key(0, 0), []);
}

#[test]
fn a_string_that_could_not_be_read_keeps_its_place() {
    let key = |typ, faults| decoded(typ, ["a", "b"], faults).take_texts(Value::Key);
    assert_eq!(key(0x1200, 0b100), [Some("a".to_owned()), None]);
    assert_eq!(key(0x1200, 0b010), [None, Some("b".to_owned())]);
    // It is no part of the value.
    assert_eq!(key(0x1100, 0b100), [Some("a".to_owned())]);
}
