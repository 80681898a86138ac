//! Slots, and their JSON.

use proptest::{collection::vec, option, prelude::*, sample::subsequence};

use super::{Value as _, *};
use crate::{
    decode::{Element, Group, Listed},
    fixture::{VALUES, Value},
    plan::name,
};

/// A datum of the kind that this value has.
fn datum(value: Value) -> BoxedStrategy<Datum> {
    let text = || vec(any::<char>(), 0..6).prop_map(String::from_iter);
    let name = || text().prop_map(Arc::<str>::from);
    match value.kind() {
        Kind::Number | Kind::Signed | Kind::Time => any::<u64>().prop_map(Datum::Number).boxed(),
        Kind::Flag => any::<bool>().prop_map(Datum::Flag).boxed(),
        Kind::Text | Kind::LongText => text().prop_map(Datum::Text).boxed(),
        Kind::Texts => vec(option::of(text()), 0..4).prop_map(Datum::Texts).boxed(),
        Kind::Name => name().prop_map(Datum::Name).boxed(),
        Kind::Top => {
            let element = (text(), any::<i64>(), vec((name(), any::<i64>()), 0..3), any::<bool>())
                .prop_map(|(label, key, parts, cut)| Element { label, key, parts, cut });
            (any::<[u64; 3]>(), vec(element, 0..3))
                .prop_map(|([elements, looked_at, ties], best)| {
                    Datum::Top(Box::new(Top { elements, looked_at, ties, best }))
                })
                .boxed()
        }
        Kind::Entries => {
            let group = (option::of(name()), any::<i64>(), any::<u64>())
                .prop_map(|(name, code, keys)| Group { name, code, keys });
            let listed = (option::of(name()), any::<i64>(), vec(name(), 0..3), vec(name(), 0..3))
                .prop_map(|(name, code, texts, keys)| Listed { name, code, texts, keys });
            (any::<[u64; 2]>(), vec(group, 0..3), option::of(name()), vec(listed, 0..3))
                .prop_map(|([keys, looked_at], groups, others, listed)| {
                    Datum::Entries(Box::new(Entries { keys, looked_at, groups, others, listed }))
                })
                .boxed()
        }
    }
}

/// Some of the slots, each with what it holds, in an order of their own.
fn slots() -> impl Strategy<Value = Vec<(Value, Datum)>> {
    subsequence(VALUES.to_vec(), 0..=VALUES.len()).prop_shuffle().prop_flat_map(|values| {
        values.into_iter().map(|value| (Just(value), datum(value))).collect::<Vec<_>>()
    })
}

fn fill(slots: &[(Value, Datum)]) -> Values<Value> {
    slots.iter().fold(Values::default(), |values, (value, datum)| values.with(*value, datum.clone()))
}

fn read(json: &str) -> Result<Values<Value>, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}

proptest! {
    #[test]
    fn each_slot_is_read_again_from_its_json(slots in slots()) {
        let values = fill(&slots);
        let json = serde_json::to_string(&values).expect("it becomes JSON");
        prop_assert_eq!(read(&json), Ok(values));
    }

    #[test]
    fn the_order_of_filling_does_not_matter(
        (slots, other) in slots().prop_flat_map(|slots| (Just(slots.clone()), Just(slots).prop_shuffle())),
    ) {
        prop_assert_eq!(fill(&slots), fill(&other));
    }

    #[test]
    fn another_content_or_slot_does_matter(slots in slots(), place in any::<prop::sample::Index>()) {
        prop_assume!(!slots.is_empty());
        let place = place.index(slots.len());
        let (value, _) = slots[place];
        let emptied = fill(&slots).with(value, None::<Datum>);
        prop_assert_ne!(&emptied, &fill(&slots));
        prop_assert_ne!(&fill(&slots), &emptied);
        prop_assert_ne!(emptied.with(value, Datum::Text("something else entirely".into())), fill(&slots));
    }

    #[test]
    fn a_taken_value_is_gone_and_the_rest_stays(slots in slots(), taken in 0..VALUES.len()) {
        let value = VALUES[taken];
        let mut values = fill(&slots);
        let is = |(own, _): &&(Value, Datum)| *own == value;
        let held = slots.iter().find(is).map(|(_, datum)| datum.clone());
        prop_assert_eq!(values.take(value), held);
        let rest: Vec<_> = slots.iter().filter(|slot| !is(slot)).cloned().collect();
        prop_assert_eq!(values, fill(&rest));
    }
}

#[test]
fn a_slot_holds_what_was_put_there_last() {
    let mut values =
        Values::default().with(Value::Dish, "soup").with(Value::Orders, 1).with(Value::Dish, "stew");
    assert_eq!(values, Values::default().with(Value::Orders, 1u64).with(Value::Dish, "stew".to_owned()));
    values.set(Value::Dish, None::<&str>);
    values.set(Value::Guests, [None, None]);
    assert_eq!(values, Values::default().with(Value::Orders, Some(1)));
}

#[test]
fn a_value_read_as_another_kind_is_absent() {
    let all = || {
        let number = Values::default().with(Value::Orders, 7u64).with(Value::Change, -7i64);
        number.with(Value::Paid, true).with(Value::Dish, "soup").with(Value::Cook, Arc::<str>::from("Anna"))
    };
    let values = all();
    assert_eq!((values.number(Value::Orders), values.signed(Value::Change)), (Some(7), Some(-7)));
    assert_eq!((values.flag(Value::Paid), values.text(Value::Dish)), (Some(true), Some("soup")));
    assert_eq!(
        (values.number(Value::Paid), values.flag(Value::Orders), values.text(Value::Cook)),
        (None, None, None)
    );
    assert_eq!(all().take_text(Value::Dish).as_deref(), Some("soup"));
    assert_eq!(all().take_name(Value::Cook).as_deref(), Some("Anna"));
    assert_eq!((all().take_text(Value::Cook), all().take_name(Value::Dish)), (None, None));
    assert_eq!((all().take_top(Value::Dish), all().take_entries(Value::Dish)), (None, None));
    assert_eq!(all().take_texts(Value::Dish), Vec::new());
    let lists =
        Values::default().with(Value::Tips, Top::default()).with(Value::Complaints, Entries::default());
    assert_eq!(lists.clone().take_top(Value::Tips), Some(Box::default()));
    assert_eq!(lists.clone().take_entries(Value::Complaints), Some(Box::default()));
}

#[test]
fn a_slot_can_be_changed_where_it_is() {
    let mut values = Values::default().with(Value::Dish, "soup").with(Value::Orders, 1);
    for (value, datum) in values.iter_mut() {
        match datum {
            Datum::Text(text) => text.push('!'),
            other => assert_eq!((value, other), (Value::Orders, &mut Datum::Number(1))),
        }
    }
    assert_eq!(values, Values::default().with(Value::Dish, "soup!").with(Value::Orders, 1));
}

#[test]
fn null_is_an_empty_slot() {
    let keys = VALUES.map(|value| format!("\"{}\":null", name(value))).join(",");
    assert_eq!(read(&format!("{{{keys}}}")), Ok(Values::default()));
}

#[test]
fn an_unknown_key_is_refused_by_its_name() {
    let error = read(r#"{"orders":1,"wish":2}"#).expect_err("there is no such value");
    assert!(error.contains("unknown variant `wish`"), "{error}");
}

#[test]
fn a_key_that_is_there_twice_is_refused_by_its_name() {
    for value in VALUES {
        let other = if value == Value::Orders { Value::Change } else { Value::Orders };
        let content = some_json(value.kind());
        let json =
            format!(r#"{{"{key}":{content},"{}":1,"{key}":{content}}}"#, name(other), key = name(value));
        let error = read(&json).expect_err("it is there twice");
        assert!(error.contains(&format!("`{}` is there twice", name(value))), "{error}");
    }
}

#[test]
fn a_value_of_another_type_is_refused_by_its_name() {
    let others =
        ["-1", "1.5", "true", r#""text""#, r#"["a",null]"#, "{}", "[1]", "1", "18446744073709551615"];
    for value in VALUES {
        let allowed: &[&str] = match value.kind() {
            Kind::Number | Kind::Time => &["1", "18446744073709551615"],
            Kind::Signed => &["-1", "1"],
            Kind::Flag => &["true"],
            Kind::Text | Kind::LongText | Kind::Name => &[r#""text""#],
            Kind::Texts => &[r#"["a",null]"#],
            Kind::Top | Kind::Entries => &[],
        };
        for other in others {
            let result = read(&format!(r#"{{"{}":{other}}}"#, name(value)));
            if allowed.contains(&other) {
                assert!(result.is_ok(), "{value:?} {other}: {result:?}");
            } else {
                let error = result.expect_err(other);
                assert!(error.starts_with(&format!("`{}`: ", name(value))), "{error}");
                assert_eq!(error.matches("at line 1 column").count(), 1, "{error}");
            }
        }
    }
}

#[test]
fn only_a_map_holds_values() {
    for other in ["[]", "1", r#""orders""#, "null"] {
        let error = read(other).expect_err("it is no map");
        assert!(error.contains("expected values by name"), "{error}");
    }
}

fn some_json(kind: Kind) -> &'static str {
    match kind {
        Kind::Number | Kind::Signed | Kind::Time => "1",
        Kind::Flag => "true",
        Kind::Text | Kind::LongText | Kind::Name => r#""text""#,
        Kind::Texts => r#"["text"]"#,
        Kind::Top => r#"{"nodes":1,"lookedAt":1,"ties":1,"best":[]}"#,
        Kind::Entries => r#"{"nodes":1,"lookedAt":1,"rejections":[],"others":null}"#,
    }
}
