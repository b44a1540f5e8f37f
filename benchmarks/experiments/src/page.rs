//! Writes repeated figures as an HTML page in one file without external resources, and their claims as plain text.
//!
//! Only the functions that write an element escape text, as in [`tierfeed_plot::Svg`].

mod predictions;

use std::{collections::BTreeMap, fmt::Write as _};

use tierfeed_plot::escape;

use crate::{
    chart::{draw, series_name, value_text},
    figure::{Along, Chart, Figure, Headline, Paper, Verdict},
};

/// In the order of the summary.
const VERDICTS: [Verdict; 5] = [
    Verdict::Beaten,
    Verdict::Reproduced,
    Verdict::NotReached,
    Verdict::Inconclusive,
    Verdict::NotComparable,
];

/// Claims of one verdict that a sentence names; more are only counted.
const NAMED_MAX: usize = 2;

const NOT_KNOWN: &str = "The machine is not known.";

const READING: &str = "Bars and points are medians, and the line across them is the range of the turns. Filled bars \
                       and solid curves were measured here; hatched bars and dotted curves are as published; bars and \
                       curves of dashes are simulated. Bars of a group stand in the order of the legend.";

/// Follows the browser's colour scheme, as the charts do. On a narrow screen each row of a table with class `cards` is
/// a block with the titles beside the cells. Marks are borders and words, since printers leave backgrounds out.
const STYLE: &str = include_str!("page/style.css");

#[must_use]
pub fn page(figures: &[Figure], machine: &str) -> String {
    let mut page = Page::default();
    page.element("h1", "", "Figures of papers, repeated with tierfeed");
    let machine = one_line(machine);
    page.element("p", "", if machine.is_empty() { NOT_KNOWN } else { &machine });
    if figures.is_empty() {
        page.element("p", "sentence", "No figure was repeated.");
        return page.finish();
    }
    let papers = by_paper(figures);
    summary(&mut page, &papers);
    for (paper, figures) in papers {
        page.element("h2", "", name(paper));
        for figure in figures {
            section(&mut page, figure);
        }
    }
    page.finish()
}

#[must_use]
pub fn table(figures: &[Figure]) -> String {
    let mut text = String::new();
    for (paper, figures) in by_paper(figures) {
        for figure in figures {
            let title = [name(paper), &figure.number, &figure.title].map(one_line);
            _ = writeln!(text, "{}, {}: {}", title[0], title[1], title[2]);
            _ = writeln!(text, "{}", one_line(&sentence(&figure.headlines)));
            for claim in &figure.headlines {
                let [what, published, here, why] =
                    [&claim.what, &claim.published, &claim.here, &claim.why].map(|it| one_line(it));
                _ = writeln!(
                    text,
                    "  {:<16}{what}: published {published}, here {here}",
                    word(claim.verdict)
                );
                if !why.is_empty() {
                    _ = writeln!(text, "  {:<16}{why}", "");
                }
            }
            for emulated in &figure.emulated {
                _ = writeln!(text, "  {:<16}{}", "emulated", one_line(emulated));
            }
            _ = writeln!(text, "  {:<16}{}\n", "repeat", one_line(&figure.command));
        }
    }
    _ = writeln!(text, "{}", counted(figures.iter().flat_map(|figure| &figure.headlines)));
    let runs = figures.iter().flat_map(|figure| &figure.predictions);
    _ = writeln!(text, "{}", predictions::sentence(runs));
    text
}

fn by_paper(figures: &[Figure]) -> BTreeMap<Paper, Vec<&Figure>> {
    let mut papers: BTreeMap<Paper, Vec<&Figure>> = BTreeMap::new();
    for figure in figures {
        papers.entry(figure.paper).or_default().push(figure);
    }
    papers
}

const fn name(paper: Paper) -> &'static str {
    match paper {
        Paper::DeepMemory => "DeepMemoryDL",
        Paper::Lobster => "Lobster",
        Paper::Deli => "DELI",
        Paper::DlCache => "DLCache",
        Paper::Newer => "Later papers",
        Paper::Loaders => "Other loaders",
    }
}

const fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Beaten => "beaten",
        Verdict::Reproduced => "reproduced",
        Verdict::NotReached => "not reached",
        Verdict::Inconclusive => "inconclusive",
        Verdict::NotComparable => "not comparable",
    }
}

const fn meaning(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Beaten => "better here than published, by more than the turns lie apart",
        Verdict::Reproduced => "as published or better, but not in all turns, or in the only one",
        Verdict::NotReached => "less than published",
        Verdict::Inconclusive => "the turns lie too far apart to tell",
        Verdict::NotComparable => "the emulation does not allow the comparison",
    }
}

/// The number of claims with each of [`VERDICTS`].
fn counts<'a>(claims: impl Iterator<Item = &'a Headline>) -> [usize; VERDICTS.len()] {
    claims.fold([0; VERDICTS.len()], |counts, claim| {
        let mut verdicts = VERDICTS.iter();
        counts.map(|count| count + usize::from(verdicts.next() == Some(&claim.verdict)))
    })
}

fn counted<'a>(claims: impl Iterator<Item = &'a Headline>) -> String {
    let counts = counts(claims);
    let parts = VERDICTS.iter().zip(counts).map(|(it, count)| format!("{count} {}", word(*it)));
    let all: usize = counts.iter().sum();
    let claims = if all == 1 { "claim" } else { "claims" };
    format!("{all} {claims}: {}", parts.collect::<Vec<_>>().join(", "))
}

/// The outcome of a figure's claims, in one sentence. It names the few that were not reached.
fn sentence(claims: &[Headline]) -> String {
    let all = match claims {
        [] => return "No claim is compared.".to_owned(),
        [claim] => {
            let Headline { what, published, here, verdict, .. } = claim;
            let verdict = word(*verdict);
            return format!("The claim is {verdict}: {what}, published {published}, here {here}.");
        }
        several => several.len(),
    };
    let mut parts = Vec::new();
    for (verdict, count) in VERDICTS.into_iter().zip(counts(claims.iter())) {
        if count == all {
            let all = if all == 2 { "Both".to_owned() } else { format!("All {all}") };
            return format!("{all} claims are {}.", word(verdict));
        }
        if count == 0 {
            continue;
        }
        let verb = if count == 1 { "is" } else { "are" };
        let mut part = format!("{count} {verb} {}", word(verdict));
        let is_good = matches!(verdict, Verdict::Beaten | Verdict::Reproduced);
        if !is_good && count <= NAMED_MAX {
            let named = claims.iter().filter(|it| it.verdict == verdict);
            let named: Vec<&str> = named.map(|it| it.what.as_str()).collect();
            _ = write!(part, " ({})", named.join("; "));
        }
        parts.push(part);
    }
    let last = parts.pop().unwrap_or_default();
    format!("Of {all} claims, {} and {last}.", parts.join(", "))
}

fn summary(page: &mut Page, papers: &BTreeMap<Paper, Vec<&Figure>>) {
    let titles = VERDICTS.map(|it| ("number", word(it)));
    let titles: Vec<_> = [("", "paper"), ("number", "figures")].into_iter().chain(titles).collect();
    let row = |(paper, figures): (&Paper, &Vec<&Figure>)| {
        let claims = counts(figures.iter().flat_map(|figure| &figure.headlines));
        let counts = std::iter::once(figures.len()).chain(claims);
        std::iter::once(name(*paper).to_owned()).chain(counts.map(|it| it.to_string())).collect()
    };
    let all = papers.values().flatten().flat_map(|figure| &figure.headlines);
    page.element("p", "sentence", &counted(all));
    page.open("div", "wide");
    page.table("summary", &titles, papers.iter().map(row));
    page.close("div");
    for verdict in VERDICTS {
        page.open("p", "note");
        page.verdict(verdict);
        page.text(meaning(verdict));
        page.close("p");
    }
    let runs = papers.values().flatten().flat_map(|figure| &figure.predictions);
    page.element("p", "note", &predictions::sentence(runs));
    page.element("p", "note", READING);
    page.open("ul", "");
    for (paper, figures) in papers {
        for figure in figures {
            let title = format!("{}, {}: {}", name(*paper), figure.number, figure.title);
            page.link(&figure.name, &title);
        }
    }
    page.close("ul");
}

fn section(page: &mut Page, figure: &Figure) {
    page.target(&figure.name, &format!("{}: {}", figure.number, figure.title));
    page.element("p", "sentence", &sentence(&figure.headlines));
    page.element("p", "setting", &figure.setting);
    page.open("div", "charts");
    for (chart, drawing) in figure.charts.iter().zip(draw(&figure.charts)) {
        page.open("figure", "");
        page.element("figcaption", "", &chart.title);
        page.picture(&drawing);
        values(page, chart);
        page.close("figure");
    }
    page.close("div");
    if !figure.headlines.is_empty() {
        page.element("h4", "", "Claims");
        claims(page, &figure.headlines);
    }
    page.element("h4", "", "Emulated");
    if figure.emulated.is_empty() {
        page.element("p", "", "Nothing.");
    }
    page.list(&figure.emulated);
    if !figure.predictions.is_empty() {
        page.element("h4", "", "What the simulator predicted of the runs");
        predictions::section(page, &figure.predictions);
    }
    page.element("h4", "", "To repeat it");
    page.element("pre", "", &figure.command);
}

/// The numbers of a chart, for readers who do not see it.
fn values(page: &mut Page, chart: &Chart) {
    let rows: Vec<String> = match &chart.along {
        Along::Groups(names) => names.clone(),
        Along::Positions(positions) => positions.iter().map(f64::to_string).collect(),
    };
    let names: Vec<String> = chart.series.iter().map(series_name).collect();
    let titles: Vec<_> = std::iter::once(("", chart.x.as_str()))
        .chain(names.iter().map(|name| ("number", name.as_str())))
        .collect();
    let row = |(at, name): (usize, String)| {
        let value = |series: &crate::figure::Series| {
            series.values.get(at).copied().flatten().map_or("no value".to_owned(), value_text)
        };
        std::iter::once(name).chain(chart.series.iter().map(value)).collect()
    };
    page.open("details", "");
    page.element("summary", "", "The values as a table");
    page.open("div", "wide");
    page.table("cards", &titles, rows.into_iter().enumerate().map(row));
    page.close("div");
    page.close("details");
}

fn claims(page: &mut Page, claims: &[Headline]) {
    let titles =
        [("", "claim"), ("", "published"), ("range", "here"), ("", "verdict"), ("", "why")];
    let is_explained = claims.iter().any(|claim| !claim.why.is_empty());
    page.open("table", "cards");
    page.titles(if is_explained { &titles } else { &titles[..4] });
    for claim in claims {
        page.open("tr", "");
        page.cell(titles[0], &claim.what);
        page.cell(titles[1], &claim.published);
        page.cell(titles[2], &claim.here);
        page.push("<td data-label=\"verdict\"><span>");
        page.verdict(claim.verdict);
        page.push("</span></td>");
        if is_explained {
            page.cell(titles[4], &claim.why);
        }
        page.close("tr");
    }
    page.close("tbody");
    page.close("table");
}

/// Without line breaks and the other characters that control a terminal.
fn one_line(text: &str) -> String {
    text.replace(char::is_control, " ").trim().to_owned()
}

/// The letters of a name that an address may hold.
fn anchor(name: &str) -> String {
    name.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-")
}

#[derive(Debug, Default)]
struct Page(String);

impl Page {
    fn open(&mut self, name: &str, class: &str) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        self.push(&format!("<{name}{class}>"));
    }

    fn close(&mut self, name: &str) {
        self.push(&format!("</{name}>\n"));
    }

    fn text(&mut self, text: &str) {
        self.push(&escape(text));
    }

    /// Writes nothing if there is no text.
    fn element(&mut self, name: &str, class: &str, text: &str) {
        if !text.is_empty() {
            self.open(name, class);
            self.text(text);
            self.close(name);
        }
    }

    fn list(&mut self, items: &[String]) {
        if !items.is_empty() {
            self.open("ul", "");
            items.iter().for_each(|item| self.element("li", "", item));
            self.close("ul");
        }
    }

    /// A title that [`Page::link`] leads to.
    fn target(&mut self, name: &str, title: &str) {
        self.push(&format!("<h3 id=\"{}\">{}</h3>\n", anchor(name), escape(title)));
    }

    fn link(&mut self, name: &str, title: &str) {
        self.push(&format!("<li><a href=\"#{}\">{}</a></li>\n", anchor(name), escape(title)));
    }

    fn verdict(&mut self, verdict: Verdict) {
        let word = word(verdict);
        self.push(&format!("<span class=\"verdict {}\">{word}</span> ", word.replace(' ', "-")));
    }

    /// Cells have the class of their title.
    fn table(
        &mut self,
        class: &str,
        titles: &[(&str, &str)],
        rows: impl Iterator<Item = Vec<String>>,
    ) {
        self.open("table", class);
        self.titles(titles);
        for row in rows {
            self.open("tr", "");
            titles.iter().zip(&row).for_each(|(title, text)| self.cell(*title, text));
            self.close("tr");
        }
        self.close("tbody");
        self.close("table");
    }

    /// Opens the body of the table as well.
    fn titles(&mut self, titles: &[(&str, &str)]) {
        self.push("<thead><tr>");
        for (class, title) in titles {
            self.push(&format!("<th class=\"{class}\">{}</th>", escape(title)));
        }
        self.push("</tr></thead>\n<tbody>\n");
    }

    fn cell(&mut self, (class, title): (&str, &str), text: &str) {
        let (title, text) = (escape(title), escape(text));
        self.push(&format!("<td class=\"{class}\" data-label=\"{title}\">{text}</td>"));
    }

    fn picture(&mut self, svg: &str) {
        self.push(svg);
    }

    fn finish(self) -> String {
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
             <title>tierfeed: figures of papers</title>\n<style>{STYLE}</style>\n</head>\n\
             <body>\n{}</body>\n</html>\n",
            self.0
        )
    }

    fn push(&mut self, text: &str) {
        self.0.push_str(text);
    }
}

#[cfg(test)]
mod tests;
