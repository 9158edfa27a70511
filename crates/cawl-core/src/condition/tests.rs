use proptest::prelude::*;

use super::*;

/// A call of 100 ms, of which 60 ms are unexpected and 30 ms for new pages; 35 ms were predicted.
fn holds(text: &str) -> bool {
    let mut event = Event::new(Op::Fsync);
    (event.duration, event.dev, event.ino) = (100_000_000, 1, 2);
    let mut causes = CauseTimes::default();
    causes[Cause::Unexpected] = 60_000_000;
    causes[Cause::NewPages] = 30_000_000;
    let condition: Condition = text.parse().unwrap_or_else(|error| panic!("{error}"));
    condition.holds(&event, &causes, Some(Nanos::millis(35.0)), |_| Some("/data/one.db"))
}

#[test]
fn conditions_hold_or_do_not() {
    for text in [
        "unexpected > 50ms",
        "unexpected>50ms",
        "unexpected >= 60ms and unexpected <= 60ms",
        "new pages > 29ms",
        "new-pages > 29000us",
        "  new   pages<0.031s ",
        "observed > 99ms",
        "residual >= 65ms and residual < 66ms",
        "predicted < 36ms",
        "not throttle > 0ms",
        "not not unexpected > 50ms",
        "throttle > 1s or unexpected > 50ms and journal <= 0ns",
        "(throttle > 1s or unexpected > 50ms) and op == fsync",
        "op != write",
        "op==fsync",
        "file ~ /data/*.db",
        "file ~ *one* and (file ~ '/data/one.d?')",
        "unexpected > 1ms and file ~ \"*\"",
        "residual > -5ms",
    ] {
        assert!(holds(text), "{text}");
    }
    for text in [
        "unexpected > 60ms",
        "throttle > 1s or unexpected > 50ms and journal > 0ns",
        "not (unexpected > 50ms)",
        "op == write or op != fsync",
        "file ~ /data/*.dbx",
        "file ~ data",
        "residual < -5ms",
        "observed < 100ms",
    ] {
        assert!(!holds(text), "{text}");
    }
}

#[test]
fn a_call_without_a_prediction_has_no_residual() {
    for text in ["residual > 0ms", "residual <= 0ms", "predicted < 1s"] {
        let condition: Condition = text.parse().expect("well formed");
        let none = |_| None;
        assert!(!condition.holds(&Event::new(Op::Write), &CauseTimes::default(), None, none), "{text}");
    }
}

#[test]
fn every_cause_and_operation_can_be_named() {
    for cause in Cause::ALL {
        for name in [cause.name().to_owned(), cause.name().replace(' ', "-")] {
            let condition: Condition = format!("{name} > 1ms").parse().expect("a cause");
            assert_eq!(condition.root, Node::Time(Quantity::Cause(cause), Relation::Above, 1_000_000));
        }
    }
    for op in Op::ALL {
        assert_eq!(format!("op == {}", op.name()).parse::<Condition>().expect("one").root, Node::Op(*op));
    }
}

#[test]
fn names_are_looked_up_last() {
    let condition: Condition = "file ~ *.db and unexpected > 1s".parse().expect("well formed");
    let looked_up = |_| panic!("the time decides");
    assert!(!condition.holds(&Event::new(Op::Write), &CauseTimes::default(), None, looked_up));
}

#[test]
fn what_is_wrong_is_pointed_at() {
    for (text, what, at) in [
        ("", "a comparison is expected", 0),
        ("unexpected", "`>`, `>=`", 10),
        ("unexpected > 50", "with its unit", 13),
        ("unexpected > 50ms or", "a comparison is expected", 20),
        ("unexpected > 50ms or or", "a comparison is expected", 21),
        ("unexpected > 50ms throttle > 1s", "`and`, `or` or the end", 18),
        ("slow > 5ms", "there is no time `slow`; the times are observed", 0),
        ("é > 5ms", "there is no time `é`", 0),
        ("not é > 5ms", "there is no time `é`", 4),
        ("new pages and > 5ms", "`>`, `>=`", 10),
        ("(lock > 5ms", "`)` is expected", 11),
        ("lock > 5ms)", "`and`, `or` or the end", 10),
        ("lock = 5ms", "`>`, `>=`", 5),
        ("lock > ms", "with its unit", 7),
        ("lock > 5lightyears", "with its unit", 7),
        ("unexpected > -5ms", "only `residual` can be below zero; remove the `-`", 13),
        ("observed<-5ms or lock > 1ms", "only `residual`", 9),
        ("residual > -5", "with its unit", 12),
        ("op == sing", "an operation is expected", 6),
        ("op fsync", "`==` or `!=`", 3),
        ("file == x", "`~` and a pattern", 5),
        ("file ~ ", "a pattern is expected", 7),
        ("file ~ 'x", "no closing quote", 7),
    ] {
        let error = text.parse::<Condition>().expect_err(text);
        assert!(error.what.contains(what), "{text}: {error}");
        assert_eq!(error.at, at, "{text}: {error}");
    }
    let told = "lock > 5".parse::<Condition>().expect_err("no unit").to_string();
    assert!(told.ends_with("\n  lock > 5\n         ^"), "{told}");
    let deep = "(".repeat(1000);
    assert!(deep.parse::<Condition>().expect_err("too deep").what.contains("too many"));
    let long = "lock > 5ms or ".repeat(1000);
    assert!(long.parse::<Condition>().expect_err("too long").what.contains("too long"));
}

/// Conditions by the grammar, as text.
fn grammatical() -> impl Strategy<Value = String> {
    let name = prop::sample::select(Cause::ALL.map(Cause::name).to_vec());
    let time = (name, prop::sample::select(vec![">", ">=", "<", "<="]), 0..10_000_u32)
        .prop_map(|(name, sign, ms)| format!("{name} {sign} {ms}ms"));
    let leaf = prop_oneof![time, Just("op == write".to_owned()), Just("file ~ /a*".to_owned())];
    leaf.prop_recursive(6, 32, 2, |part| {
        prop_oneof![
            (part.clone(), part.clone()).prop_map(|(one, other)| format!("({one}) and ({other})")),
            (part.clone(), part.clone()).prop_map(|(one, other)| format!("{one} or {other}")),
            part.prop_map(|part| format!("not ({part})")),
        ]
    })
}

proptest! {
    #[test]
    fn what_the_grammar_makes_is_understood(text in grammatical()) {
        prop_assert!(text.parse::<Condition>().is_ok(), "{}", text);
        // Blanks between tokens change nothing.
        let spaced: Condition = text.replace(' ', "  ").parse().expect("the same");
        prop_assert_eq!(spaced.root, text.parse::<Condition>().expect("well formed").root);
    }

    #[test]
    fn anything_else_is_refused_at_a_place_in_the_text(text in "[a-z><=~()' \"*0-9.é-]{0,60}") {
        if let Err(error) = text.parse::<Condition>() {
            prop_assert!(error.at <= text.chars().count());
            prop_assert!(error.to_string().contains('^'));
        }
    }
}
