//! Tests of the page.

use super::*;
use crate::{
    chart::tests::{chart, elements, groups, measured, value},
    figure::{Prediction, Source},
};

const EVIL: &str = "</td><script>alert(\"1\" & '2')</script>";

fn claim(what: &str, verdict: Verdict) -> Headline {
    Headline {
        what: what.to_owned(),
        published: "-34 %".to_owned(),
        here: "-41 % (-38 to -43)".to_owned(),
        measured: None,
        verdict,
        why: String::new(),
    }
}

fn prediction(predicted_cold_bytes: u64, cold_bytes: u64) -> Prediction {
    let run = "a quarter of the memory".to_owned();
    let (predicted_s, seconds, predicted_stall_s, stall_s) = (9.0, 10.0, 2.0, 3.0);
    Prediction {
        run,
        predicted_cold_bytes,
        cold_bytes,
        self_read_bytes: 0,
        predicted_s,
        seconds,
        predicted_stall_s,
        stall_s,
    }
}

fn figure(name: &str, paper: Paper, headlines: Vec<Headline>) -> Figure {
    Figure {
        name: name.to_owned(),
        paper,
        number: "Figure 8".to_owned(),
        title: "Time of an epoch".to_owned(),
        setting: "512 photographs on a slow disk.".to_owned(),
        charts: vec![chart(
            groups(&["constrained", "extended"]),
            vec![measured("tierfeed", &[value(1.25, 1.0, 1.5), value(2.0, 2.0, 2.0)])],
        )],
        headlines,
        predictions: vec![prediction(3072, 2048)],
        emulated: vec!["CXL memory".to_owned()],
        command: format!("tierfeed-bench paper {name}"),
    }
}

fn figures() -> Vec<Figure> {
    let three = [
        ("against constrained memory", Verdict::Beaten),
        ("against extended memory", Verdict::NotReached),
        ("stalls", Verdict::Inconclusive),
    ];
    let three = three.map(|(what, verdict)| claim(what, verdict)).into();
    vec![
        figure("lobster-7", Paper::Lobster, vec![claim("hits", Verdict::NotComparable)]),
        figure("deep-memory-8", Paper::DeepMemory, three),
        figure("deep-memory-9", Paper::DeepMemory, vec![claim("CPU", Verdict::Reproduced)]),
    ]
}

/// The figure with `text` in place of everything that a name or a file may bring.
fn named(text: &str) -> Figure {
    let mut figure = figure(text, Paper::Newer, vec![claim(text, Verdict::Beaten)]);
    let (claim, chart) = (&mut figure.headlines[0], &mut figure.charts[0]);
    chart.along = groups(&[text, text]);
    for field in [
        &mut figure.number,
        &mut figure.title,
        &mut figure.setting,
        &mut claim.published,
        &mut claim.here,
        &mut claim.why,
        &mut figure.predictions[0].run,
        &mut figure.emulated[0],
        &mut figure.command,
        &mut chart.title,
        &mut chart.x,
        &mut chart.y,
        &mut chart.series[0].name,
    ] {
        text.clone_into(field);
    }
    figure
}

fn texts(page: &str, name: &str) -> Vec<String> {
    elements(page).into_iter().filter(|it| it.name == name).map(|it| it.text).collect()
}

#[test]
fn every_claim_and_command_is_on_the_page_and_in_the_table() {
    let (figures, page) = (figures(), page(&figures(), "2 cores"));
    let (shown, text) = (elements(&page), table(&figures));
    for figure in &figures {
        let one = [&figure.command, &figure.emulated[0]];
        let claims = figure.headlines.iter().flat_map(|it| [&it.what, &it.published, &it.here]);
        for part in one.into_iter().chain(claims) {
            assert!(shown.iter().any(|it| it.text == *part), "{part} is not on {page}");
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(shown.iter().any(|it| it.text == figure.setting));
    }
    let words = shown.iter().filter(|it| it.name == "span").map(|it| it.text.as_str());
    let words: Vec<_> = words.filter(|it| !it.trim().is_empty()).collect();
    let (meanings, verdicts) = words.split_at(VERDICTS.len());
    assert_eq!(meanings, VERDICTS.map(word));
    let in_order = ["beaten", "not reached", "inconclusive", "reproduced", "not comparable"];
    assert_eq!(verdicts, in_order);
    let titles = ["DeepMemoryDL", "Lobster"];
    assert_eq!(texts(&page, "h2"), titles, "papers stand in their order");
}

#[test]
fn the_summary_counts_claims_by_paper() {
    let page = page(&figures(), "2 cores");
    let cells = texts(&page, "td");
    assert_eq!(cells[..7], ["DeepMemoryDL", "2", "1", "1", "1", "1", "0"]);
    assert_eq!(cells[7..14], ["Lobster", "1", "0", "0", "0", "0", "1"]);
    let text = table(&figures());
    let sum = "5 claims: 1 beaten, 1 reproduced, 1 not reached, 1 inconclusive, 1 not comparable";
    assert!(text.lines().any(|line| line == sum), "{text}");
    assert!(texts(&page, "p").contains(&sum.to_owned()), "{page}");
}

#[test]
fn a_figure_has_one_sentence_that_names_what_was_not_reached() {
    use Verdict::{Beaten, Inconclusive, NotReached};

    let of = |verdicts: &[Verdict]| {
        let claims: Vec<_> =
            (1..).zip(verdicts).map(|(at, it)| claim(&format!("claim {at}"), *it)).collect();
        sentence(&claims)
    };
    assert_eq!(of(&[]), "No claim is compared.");
    let one = "The claim is beaten: claim 1, published -34 %, here -41 % (-38 to -43).";
    assert_eq!(of(&[Beaten]), one);
    assert_eq!(of(&[Beaten; 2]), "Both claims are beaten.");
    assert_eq!(of(&[NotReached; 3]), "All 3 claims are not reached.");
    assert_eq!(
        of(&[Inconclusive, Beaten, NotReached, Beaten]),
        "Of 4 claims, 2 are beaten, 1 is not reached (claim 3) and 1 is inconclusive (claim 1)."
    );
    assert_eq!(
        of(&[Beaten, NotReached, NotReached, NotReached]),
        "Of 4 claims, 1 is beaten and 3 are not reached."
    );
}

#[test]
fn markup_in_names_stays_text() {
    let (plain, evil) = (page(&[named("name")], "here"), page(&[named(EVIL)], EVIL));
    let tags = |page: &str| elements(page).into_iter().map(|it| it.name).collect::<Vec<_>>();
    let count = |page: &str, name: &str| tags(page).iter().filter(|it| *it == name).count();
    assert_eq!(count(&evil, "script"), 0);
    for name in ["td", "th", "h3", "h4", "p", "pre", "li", "figcaption", "a"] {
        assert_eq!(count(&evil, name), count(&plain, name), "{name}");
    }
    for name in ["td", "th", "h3", "p", "pre", "li", "figcaption", "a"] {
        let whole = texts(&evil, name).iter().any(|it| it.contains(EVIL));
        assert!(whole, "{name} of {evil}");
    }
}

#[test]
fn a_page_loads_nothing_and_follows_the_scheme() {
    let page = page(&figures(), "2 cores");
    for element in elements(&page) {
        assert!(!["script", "link", "img", "iframe", "object"].contains(&&*element.name));
        for (key, value) in element.attributes {
            let is_inside = key == "xmlns" || !value.contains("//");
            assert!(is_inside && !key.starts_with("on"), "{key}={value}");
            assert!(key != "href" || value.starts_with('#'), "{value}");
        }
    }
    assert!(!page.contains("url(") && !page.contains("@import"));
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
}

#[test]
fn links_lead_to_their_figures() {
    let all = elements(&page(&[figures(), vec![named(EVIL)]].concat(), "2 cores"));
    let of = |key: &str| {
        let values = all.iter().filter_map(|it| it.attributes.get(key));
        values.map(|it| it.trim_start_matches('#').to_owned()).collect::<Vec<_>>()
    };
    let mut links = of("href");
    assert_eq!(links, of("id"));
    links.sort();
    links.dedup();
    assert_eq!(links.len(), 4, "{links:?}");
}

#[test]
fn what_is_not_known_or_missing_is_said() {
    let none = page(&[], " \n");
    assert_eq!(texts(&none, "p"), [NOT_KNOWN, "No figure was repeated."]);
    assert_eq!(texts(&page(&[], "2 cores"), "p")[0], "2 cores");
    let mut figure = figure("x", Paper::Deli, Vec::new());
    figure.emulated.clear();
    figure.charts[0].series[0].source = Source::Published;
    figure.charts[0].series[0].values.pop();
    let page = page(&[figure], "2 cores");
    assert!(texts(&page, "p").contains(&"Nothing.".to_owned()), "{page}");
    assert!(texts(&page, "td").contains(&"no value".to_owned()), "{page}");
    assert!(texts(&page, "th").contains(&"tierfeed (published)".to_owned()), "{page}");
}

#[test]
fn predictions_stand_beside_runs_with_their_difference() {
    let mut figure = figure("x", Paper::Deli, Vec::new());
    figure.predictions.push(prediction(2048, 0));
    figure.predictions.push(prediction(0, 0));
    let cells = texts(&page(&[figure], "2 cores"), "td");
    let at = cells.iter().position(|it| it == "a quarter of the memory").unwrap();
    assert_eq!(
        cells[at + 1..at + 10],
        ["3 KiB", "2 KiB", "0 B", "+50.0 %", "9.00 s", "10.00 s", "-10.0 %", "2.00 s", "3.00 s"]
    );
    assert_eq!(cells[at + 11..at + 15], ["2 KiB", "0 B", "0 B", "not defined"]);
    assert_eq!(cells[at + 21..at + 25], ["0 B", "0 B", "0 B", "0.0 %"]);
}

#[test]
fn nothing_in_a_name_controls_the_terminal() {
    let text = table(&[named("\u{1b}[2Jgone\r\u{9b}")]);
    let control = text.chars().find(|it| it.is_control() && *it != '\n');
    assert_eq!(control, None, "{text:?}");
    assert!(text.contains("[2Jgone"), "{text}");
}
