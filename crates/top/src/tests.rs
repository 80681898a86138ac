use kube_scheduler::{
    last_minute::{Count, Moves, Overhead},
    terms::Search,
};
use ratatui::{
    Terminal,
    backend::TestBackend,
    crossterm::event::{KeyCode, KeyModifiers},
};

use super::*;
use crate::keys::{Explained, Wish};

fn timing(name: &str, point: &str, count: u64, us: u64) -> Timing {
    Timing {
        name: name.to_owned(),
        extension_point: point.to_owned(),
        count,
        total_ns: count * us * 1000,
        p50_ns: us * 900,
        p99_ns: us * 3000,
        max_ns: us * 5000,
    }
}

fn recent() -> LastMinute {
    let count = |name: &str, count| Count { name: name.to_owned(), count };
    let entry =
        |queue: &str, event: &str, count| Moves { queue: queue.to_owned(), event: event.to_owned(), count };
    let slow = |pod: &str, ms: u64, result: &str, phase: &str, node: &str| Slow {
        duration_ns: ms * 1_000_000,
        namespace: "default".to_owned(),
        pod: pod.to_owned(),
        result: result.to_owned(),
        node: node.to_owned(),
        phase: phase.to_owned(),
    };
    LastMinute {
        version: "0.1.0".to_owned(),
        seconds: 60,
        schedulers: 1,
        attempts: vec![count("Success", 6000), count("Unschedulable", 90), count("unknown", 2)],
        moves: vec![
            entry("active", "UnscheduledPodAdd", 6090),
            entry("active", "BackoffComplete", 3),
            entry("unschedulable", "ScheduleAttemptFailure", 90),
        ],
        phases: vec![
            timing("SchedulePod", "", 6092, 5110),
            timing("bind", "", 6000, 3000),
            timing("bindingCycle", "", 6000, 3200),
            timing("filter", "", 6092, 669),
            timing("handleSchedulingFailure", "", 90, 2810),
            timing("preFilter", "", 6092, 143),
            timing("schedulingCycle", "", 6092, 1900),
            timing("snapshot", "", 6092, 7),
        ],
        plugins: vec![
            timing("DefaultBinder", "bind", 6000, 2990),
            timing("InterPodAffinity", "preFilter", 6092, 31),
            timing("NodeResourcesBalancedAllocation", "preScore", 6000, 4),
        ],
        slowest: vec![
            slow("web-7d4b9c-x2x8k", 61, "Success", "bind", "node-0001"),
            slow("large", 19, "Unschedulable", "handleSchedulingFailure", ""),
            slow("a\u{1b}]0;owned\u{7}", 18, "Error", "bind", ""),
        ],
        losses: vec![count("ring_full", 0), count("orphan_move", 3)],
        ..LastMinute::default()
    }
}

static KEYS: Keys = Keys { sort: Sort::Time, filter: String::new(), typing: false, selected: 0, page: None };

fn view(recent: &LastMinute) -> View<'_> {
    View { recent: Some(recent), server: "http://127.0.0.1:9090", trouble: None, keys: &KEYS, live: true }
}

/// The screen as text, without trailing spaces.
fn screen(view: &View<'_>, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| frame.render_widget(view, frame.area())).unwrap();
    let buffer = terminal.backend().buffer();
    let line =
        |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned() + "\n";
    (0..height).map(line).collect()
}

#[test]
fn a_screen_of_80_by_24_holds_what_matters() {
    let expected = "\
schedspan top  http://127.0.0.1:9090  1 scheduler  last 60 s
attempts/s   Success 100  Unschedulable 1.5  Error 0  unknown 0.03
queues/s     active 102  backoff 0  unschedulable 1.5
events/s     UnscheduledPodAdd 102  ScheduleAttemptFailure 1.5  BackoffComplete
lost         orphan_move 3 since the daemon's start

PHASE                /s     p50     p99  PLUGIN                     TIME     p99
SchedulePod         102 4.60 ms 15.3 ms  DefaultBinder bind       57.6 % 8.97 ms
bindingCycle        100 2.88 ms 9.60 ms  InterPodAffinity preFilt  0.6 % 93.0 us
bind                100 2.70 ms 9.00 ms  NodeResourcesBalancedAll  0.1 % 12.0 us
schedulingCycle     102 1.71 ms 5.70 ms
filter              102  602 us 2.01 ms
preFilter           102  129 us  429 us
handleSchedulingF   1.5 2.53 ms 8.43 ms
snapshot            102 6.30 us 21.0 us


SLOWEST POD                        TOOK RESULT        MOSTLY        NODE
default/web-7d4b9c-x2x8k        61.0 ms Success       bind          node-0001
default/large                   19.0 ms Unschedulable handleSchedul
default/a?]0;owned?             18.0 ms Error         bind


q quit   Enter explain   / filter   s sort, now by time   ? all keys
";
    assert_eq!(screen(&view(&recent()), 80, 24), expected);
}

#[test]
fn a_large_screen_shows_more() {
    let expected = "\
schedspan top  http://127.0.0.1:9090  1 scheduler  last 60 s
attempts/s   Success 100  Unschedulable 1.5  Error 0  unknown 0.03
queues/s     active 102  backoff 0  unschedulable 1.5
events/s     UnscheduledPodAdd 102  ScheduleAttemptFailure 1.5  BackoffComplete 0.05
lost         orphan_move 3 since the daemon's start

PHASE                                                         /s    TIME      p50      p99      max  PLUGIN                                                        /s    TIME      p50      p99      max
SchedulePod                                                  102 100.0 %  4.60 ms  15.3 ms  25.6 ms  DefaultBinder bind                                           100  57.6 %  2.69 ms  8.97 ms  14.9 ms
bindingCycle                                                 100  61.7 %  2.88 ms  9.60 ms  16.0 ms  InterPodAffinity preFilter                                   102   0.6 %  27.9 us  93.0 us   155 us
bind                                                         100  57.8 %  2.70 ms  9.00 ms  15.0 ms  NodeResourcesBalancedAllocation preScore                     100   0.1 %  3.60 us  12.0 us  20.0 us
schedulingCycle                                              102  37.2 %  1.71 ms  5.70 ms  9.50 ms
filter                                                       102  13.1 %   602 us  2.01 ms  3.35 ms
preFilter                                                    102   2.8 %   129 us   429 us   715 us
handleSchedulingFailure                                      1.5   0.8 %  2.53 ms  8.43 ms  14.1 ms
snapshot                                                     102   0.1 %  6.30 us  21.0 us  35.0 us
























SLOWEST POD                                                                                                TOOK RESULT         MOSTLY                   NODE
default/web-7d4b9c-x2x8k                                                                                61.0 ms Success        bind                     node-0001
default/large                                                                                           19.0 ms Unschedulable  handleSchedulingFailure
default/a?]0;owned?                                                                                     18.0 ms Error          bind






q quit   Enter explain   / filter   s sort, now by time   ? all keys
";
    assert_eq!(screen(&view(&recent()), 200, 50), expected);
}

#[test]
fn any_size_renders() {
    let recent = recent();
    for width in [1, 2, 20, 79, 119, 121, 400] {
        for height in [1, 2, 5, 10, 23, 100] {
            let _ = screen(&view(&recent), width, height);
        }
    }
}

#[test]
fn no_control_character_gets_through() {
    let mut recent = recent();
    recent.phases[0].name = "\u{1b}[31m".to_owned();
    recent.plugins[0].extension_point = "网\u{202e}".to_owned();
    recent.moves[0].event = "\u{7}".to_owned();
    let text = screen(&view(&recent), 200, 50) + &view(&recent).text(100);
    assert!(text.chars().all(|c| c == '\n' || c == ' ' || c.is_ascii_graphic()), "{text}");
}

#[test]
fn phases_and_plugins_are_sorted_by_the_selected_key() {
    let recent = recent();
    for (key, first, second) in [
        ('t', "SchedulePod", "bindingCycle"),
        ('c', "SchedulePod", "filter"),
        ('n', "SchedulePod", "bind "),
        ('p', "SchedulePod", "bindingCycle"),
    ] {
        let sort = Sort::of_key(key).unwrap();
        let keys = Keys { sort, ..KEYS.clone() };
        let text = View { keys: &keys, ..view(&recent) }.text(100);
        let place =
            |name: &str| text.find(&format!("\n{name}")).unwrap_or_else(|| panic!("no {name} in {text}"));
        assert!(place(first) < place(second), "{text}");
    }
    assert_eq!(Sort::of_key('x'), None);
    assert_eq!(Sort::Time.next().next().next().next(), Sort::Time);
}

#[test]
fn an_error_is_shown_with_the_last_figures() {
    let recent = recent();
    let text = screen(&View { trouble: Some("cannot reach a daemon"), ..view(&recent) }, 120, 24);
    assert!(text.lines().next().is_some_and(|line| line.ends_with("cannot reach a daemon")), "{text}");
    let text = screen(&View { recent: None, ..view(&recent) }, 80, 24);
    assert!(text.contains("waiting for the first figures"), "{text}");
}

#[test]
fn zero_losses_are_shown() {
    let mut recent = recent();
    recent.losses[1].count = 0;
    assert!(view(&recent).text(80).contains("lost         nothing since"), "{}", view(&recent).text(80));
}

/// Presses these keys, and returns what the last one asks for.
fn press(keys: &mut Keys, pressed: &[KeyCode]) -> Wish {
    let recent = recent();
    pressed.iter().fold(Wish::Draw, |_, key| keys.press(*key, KeyModifiers::NONE, &recent))
}

#[test]
fn enter_explains_the_selected_pod_and_escape_goes_back() {
    let mut keys = KEYS.clone();
    let explain = |pod: &str| Wish::Explain("default".to_owned(), pod.to_owned());
    assert_eq!(press(&mut keys, &[KeyCode::Enter]), explain("web-7d4b9c-x2x8k"));
    assert_eq!(press(&mut keys, &[KeyCode::Down, KeyCode::Enter]), explain("large"));
    let explained = Explained {
        text: "default/large: 1 attempt\nWhy\n".to_owned(),
        waterfall: "default/large  Unschedulable\nSchedulePod\n".to_owned(),
        ..Explained::default()
    };
    keys.page = Some(Page::Pod(explained));
    let recent = recent();
    let text = screen(&View { keys: &keys, ..view(&recent) }, 80, 24);
    assert!(text.starts_with("default/large: 1 attempt\nWhy") && !text.contains("SLOWEST"), "{text}");
    assert_eq!(press(&mut keys, &[KeyCode::Down, KeyCode::Down, KeyCode::Down]), Wish::Draw);
    assert!(matches!(&keys.page, Some(Page::Pod(Explained { top: 1, drawn: false, .. }))), "{keys:?}");
    assert_eq!(press(&mut keys, &[KeyCode::Enter]), Wish::Draw);
    let text = screen(&View { keys: &keys, ..view(&recent) }, 80, 24);
    assert!(text.starts_with("default/large  Unschedulable\nSchedulePod"), "{text}");
    assert_eq!(press(&mut keys, &[KeyCode::Esc]), Wish::Draw);
    let text = screen(&View { keys: &keys, ..view(&recent) }, 80, 24);
    assert!(text.starts_with("default/large: 1 attempt\nWhy"), "{text}");
    assert_eq!(press(&mut keys, &[KeyCode::Esc]), Wish::Draw);
    assert_eq!(keys.page, None);
    assert_eq!(press(&mut keys, &[KeyCode::Esc]), Wish::Quit);
}

#[test]
fn a_filter_leaves_what_contains_it() {
    let mut keys = KEYS.clone();
    press(
        &mut keys,
        &[
            KeyCode::Char('/'),
            KeyCode::Char('l'),
            KeyCode::Char('q'),
            KeyCode::Backspace,
            KeyCode::Char('a'),
            KeyCode::Enter,
        ],
    );
    assert_eq!((keys.filter.as_str(), keys.typing), ("la", false));
    let recent = recent();
    let text = screen(&View { keys: &keys, ..view(&recent) }, 120, 30);
    assert!(
        text.contains("default/large") && !text.contains("default/web-") && text.contains("/la"),
        "{text}"
    );
    assert!(!text.contains("DefaultBinder"), "{text}");
    assert_eq!(press(&mut keys, &[KeyCode::Enter]), Wish::Explain("default".to_owned(), "large".to_owned()));
    press(&mut keys, &[KeyCode::Esc]);
    assert_eq!(keys.filter, "");
}

#[test]
fn a_question_mark_shows_all_keys() {
    let mut keys = KEYS.clone();
    press(&mut keys, &[KeyCode::Char('?')]);
    let recent = recent();
    let text = screen(&View { keys: &keys, ..view(&recent) }, 80, 24);
    assert!(text.starts_with("Keys\n") && text.contains("Enter  "), "{text}");
}

#[test]
fn a_scheduler_that_stands_still_is_the_first_thing_said() {
    let mut recent = recent();
    recent.stalls = vec!["The scheduler with pid 7 stands still for 40 s\u{1b}[2J".to_owned()];
    recent.waiting = vec![Count { name: "active".to_owned(), count: 40 }];
    let text = screen(&view(&recent), 80, 24);
    let lines: Vec<_> = text.lines().take(3).collect();
    assert_eq!(lines[1], "The scheduler with pid 7 stands still for 40 s?[2J");
    assert_eq!(lines[2], "waiting      active 40");
}

#[test]
fn what_tracing_costs_is_said_and_what_is_cut_for_that() {
    let mut recent = recent();
    let line = |recent: &LastMinute| {
        let text = screen(&view(recent), 80, 24);
        text.lines().find(|line| line.starts_with("tracing")).map(str::to_owned)
    };
    assert_eq!(line(&recent), None, "a daemon without a budget says nothing");
    recent.overhead = Some(Overhead { ratio: 0.0123, budget: 0.05, cut: "nothing".to_owned() });
    assert_eq!(line(&recent).as_deref(), Some("tracing      1.2 % of 5.0 % of the CPU time"));
    recent.overhead = Some(Overhead { ratio: 0.061, budget: 0.05, cut: "plugins".to_owned() });
    assert_eq!(line(&recent).as_deref(), Some("tracing      6.1 % of 5.0 % of the CPU time  cut: plugins"));
}

fn cost(term: &str, [attempts, filter_us, score_us]: [u64; 3], without: [u64; 3], plugin: &str) -> TermCost {
    let search = |[attempts, filter_us, score_us]: [u64; 3]| Search {
        attempts,
        filter_ns: attempts * filter_us * 1000,
        score_ns: attempts * score_us * 1000,
    };
    let with = search([attempts, filter_us, score_us]);
    let plugin = plugin.to_owned();
    TermCost { term: term.to_owned(), with, without: search(without), plugin, plugin_ns: with.total_ns() / 4 }
}

fn with_terms() -> LastMinute {
    let terms = vec![
        cost("required Pod anti-affinity", [600, 12_100, 300], [5_400, 400, 280], "InterPodAffinity"),
        cost("soft spread constraints", [12, 500, 900], [5_988, 430, 280], "PodTopologySpread"),
        cost("node selector", [6_000, 431, 281], [0, 0, 0], "\u{1b}[31m"),
    ];
    LastMinute { terms, ..recent() }
}

#[test]
fn waits_elsewhere_are_listed_if_there_are_any() {
    let wait = |what: &str, name: &str, count, ms: u64| Wait {
        what: what.to_owned(),
        name: name.to_owned(),
        count,
        total_ns: count * ms * 500_000,
        max_ns: ms * 1_000_000,
    };
    let waits = vec![
        wait("image", "nginx:1.29\u{1b}[2J", 3, 31_000),
        wait("work queue", "job", 600, 20),
        wait("work queue", "replicaset", 60, 4),
    ];
    let recent = LastMinute { waits, ..recent() };
    let lines = |text: String| -> Vec<String> {
        let lines = text.lines().skip_while(|line| !line.starts_with("WAITS ELSEWHERE"));
        lines.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let all = lines(View { live: false, ..view(&recent) }.text(80));
    let words: Vec<_> =
        all.iter().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        words,
        [
            "WAITS ELSEWHERE /s mean max",
            "image nginx:1.29?[2J 0.05 15.5 s 31.0 s",
            "work queue job 10.0 10.0 ms 20.0 ms",
            "work queue replicaset 1.0 2.00 ms 4.00 ms",
        ]
    );
    let low = screen(&view(&recent), 80, 24);
    assert!(low.contains("\nSLOWEST POD") && low.contains("default/large"), "{low}");
    assert_eq!(lines(low).len(), FEW_TERMS + 1);
    let many = LastMinute { waits: vec![recent.waits[0].clone(); 1_000], ..recent };
    assert_eq!(lines(View { live: false, ..view(&many) }.text(80)).len(), WAITS + 1);
    for (width, height) in [(1, 1), (20, 5), (80, 12), (400, 100)] {
        let _ = screen(&view(&many), width, height);
    }
}

#[test]
fn the_dearest_terms_are_compared_with_the_pods_without_them() {
    let recent = with_terms();
    let lines = |text: String| -> Vec<String> {
        let lines = text.lines().skip_while(|line| !line.starts_with("PODS WITH"));
        lines.take_while(|line| !line.is_empty()).map(str::to_owned).collect()
    };
    let low = screen(&view(&recent), 80, 24);
    assert!(
        low.contains("\nfilter ") && low.contains("\nSLOWEST POD") && low.contains("default/large"),
        "{low}"
    );
    assert_eq!(
        lines(low),
        [
            "PODS WITH                    /s  FILTER WITHOUT   SCORE WITHOUT MOSTLY",
            "required Pod anti-affinity 10.0 12.1 ms  400 us  300 us  280 us InterPodAffinity",
            "soft spread constraints     0.2  500 us  430 us  900 us  280 us PodTopologySprea",
        ]
    );
    let all = lines(View { live: false, ..view(&recent) }.text(160));
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(all[1].ends_with("InterPodAffinity 25.0 %"), "{all:?}");
    assert!(
        all[3].starts_with("node selector") && all[3].contains(" - ") && all[3].ends_with("?[31m 25.0 %"),
        "{all:?}"
    );
    assert_eq!(lines(screen(&view(&recent), 160, 50)).len(), 4);
    // A daemon may send any number of rows.
    let many = LastMinute { terms: vec![recent.terms[0].clone(); 1_000], ..recent.clone() };
    assert_eq!(lines(View { live: false, ..view(&many) }.text(80)).len(), TERMS + 1);
    for (width, height) in [(1, 1), (20, 5), (80, 12), (400, 100)] {
        let _ = screen(&view(&recent), width, height);
    }
}
