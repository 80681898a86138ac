//! A small program for tests: values of every kind, and an assembler that makes something of each event.

use goexe::{Executable, Functions, Types};

use crate::{
    account::{Books, Count, Counter},
    functions,
    plan::{Begin, End, Interface, Row, Signature, Want},
    program::Assemble,
    program::Event,
    program::{Detail, Metric, Named, Program, SpelledOut},
    values,
    values::{Datum, Values},
};

/// Takes orders, prepares and serves them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kitchen;

values! {
    /// A value of each kind, and those of the metric.
    pub(crate) enum Value;

    Orders: Number,
    Change: Signed,
    Paid: Flag,
    Ordered: Time,
    Dish: Text,
    Recipe: LongText,
    Guests: Texts,
    Cook: Name,
    Tips: Top,
    Complaints: Entries,
    Started: Number,
    Panics: Flag,
    Result: Signed,
}

/// All values.
pub(crate) const VALUES: [Value; 13] = [
    Value::Orders,
    Value::Change,
    Value::Paid,
    Value::Ordered,
    Value::Dish,
    Value::Recipe,
    Value::Guests,
    Value::Cook,
    Value::Tips,
    Value::Complaints,
    Value::Started,
    Value::Panics,
    Value::Result,
];

const NOTHING: &[Want<Value>] = &[];

const fn row(symbols: &'static [&'static str]) -> Row<Value> {
    Row {
        symbols,
        signature: Signature::Unused,
        begin: Begin::Entry,
        at_entry: NOTHING,
        end: End::Return,
        at_end: NOTHING,
        since: None,
        without: "the call",
    }
}

functions! {
    /// Functions of each level of detail.
    pub(crate) enum Function: &'static str, Value;

    Take {
        detail: Phases,
        about: "takes an order",
        rows: [row(&["kitchen.take"])],
    }
    Prepare {
        detail: Plugins,
        about: "prepares a dish",
        rows: [row(&["kitchen.prepare", "kitchen.cook"])],
    }
    Serve {
        detail: Full,
        about: "serves a dish",
        rows: [],
    }
}

/// What the fixture's metric is about.
pub(crate) const METRIC: Metric<Value> = Metric {
    taken: "kitchen.since",
    labelled: "kitchen.(*Metric).with",
    started: Value::Started,
    panics: Value::Panics,
    result: Value::Result,
    results: &[
        "Success",
        "Error",
        "Unschedulable",
        "UnschedulableAndUnresolvable",
        "Wait",
        "Skip",
        "Pending",
    ],
};

/// A text of which nothing is kept.
pub(crate) const SECRET: &str = "secret";

impl Program for Kitchen {
    const NAME: &'static str = "kitchen";
    const MARKERS: &'static [&'static str] = &["kitchen.main", "kitchen.open"];
    const FILE_NAMES: &'static [&'static str] = &["kitchen"];
    const CALLERS: &'static [&'static str] = &["kitchen"];
    const CALLS_INDIRECTLY: &'static str = "kitchen";
    const METRIC: Option<Metric<Value>> = Some(METRIC);
    const QUIET: &'static [(Value, &'static [u64])] = &[(Value::Result, &[0, 5])];
    const SPELLED_OUT: SpelledOut = SpelledOut {
        interfaces: &[Interface::Named(&["kitchen"], "Cook")],
        structs: &[("kitchen", "Table")],
    };
    const COUNTERS: &'static [Counter] =
        &[Counter { name: "kitchen_orders", help: "Orders", labels: &["dish"] }];

    type Function = Function;
    type Value = Value;
    type Assembler = Orders;

    fn names(
        _executable: &Executable<'_>,
        _functions: &Functions<'_>,
        _types: &Types<'_>,
    ) -> Result<Vec<Named>, goexe::Error> {
        Ok(Vec::new())
    }

    fn keep(_value: Value, text: String) -> Option<String> {
        (text != SECRET).then_some(text)
    }

    fn redact(values: &mut Values<Value>, replace: &mut dyn FnMut(&'static str, &mut String)) {
        for (value, datum) in values.iter_mut() {
            if let (Value::Dish, Datum::Text(name)) = (value, datum) {
                replace("dish", name);
            }
        }
    }
}

/// Every event is open until the function has returned, the process has ended, or it is too old.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    open: Vec<Event<Kitchen>>,
    books: Books<Event<Kitchen>>,
}

impl Orders {
    fn give_up(&mut self, is: impl Fn(&Event<Kitchen>) -> bool) {
        let before = self.open.len();
        self.open.retain(|event| !is(event));
        let lost = (before - self.open.len()) as u64;
        self.books.account.orphaned += lost;
        self.books.stats.orphan_calls += lost;
    }
}

impl Assemble<Kitchen> for Orders {
    type Output = Event<Kitchen>;

    fn on(&mut self, event: Event<Kitchen>) {
        self.books.account.events += 1;
        if event.role == crate::Role::Entry {
            self.open.push(event);
        } else {
            self.books.account.in_attempts += 1;
            self.books.finished.push(event);
        }
    }

    fn expire(&mut self, now_ns: u64) {
        self.give_up(|event| event.time_ns < now_ns);
    }

    fn exit(&mut self, target: u32) {
        self.give_up(|event| event.target == target);
    }

    fn books(&self) -> &Books<Event<Kitchen>> {
        &self.books
    }

    fn books_mut(&mut self) -> &mut Books<Event<Kitchen>> {
        &mut self.books
    }

    fn counts(&self) -> Vec<Count> {
        vec![Count {
            counter: "kitchen_orders",
            labels: vec!["soup".into()],
            total: self.books.account.events,
        }]
    }
}

#[test]
fn a_declared_function_knows_its_level_and_its_rows() {
    use crate::program::Function as _;

    let all = Function::ALL.iter().map(|function| (*function, function.about(), function.detail()));
    assert_eq!(
        all.collect::<Vec<_>>(),
        [
            (Function::Take, "takes an order", Detail::Phases),
            (Function::Prepare, "prepares a dish", Detail::Plugins),
            (Function::Serve, "serves a dish", Detail::Full),
        ]
    );
    let symbols = |function: Function| function.rows().iter().flat_map(|row| row.symbols).copied();
    assert_eq!(symbols(Function::Prepare).collect::<Vec<_>>(), ["kitchen.prepare", "kitchen.cook"]);
    assert_eq!(symbols(Function::Serve).count(), 0);
}
