//! Writes the few elements of SVG that charts need.

use std::fmt::{Display, Write};

use crate::escape;

/// Classes in both colour schemes. Written out twice, because few renderers support CSS variables.
const STYLE: &str = "
text { font-family: system-ui, sans-serif; font-size: 13px; }
.title { font-size: 20px; font-weight: 600; }
.heading { font-size: 15px; font-weight: 600; }
.small { font-size: 12px; }
.end { text-anchor: end; }
.middle { text-anchor: middle; }
.paper { fill: #ffffff; }
.ink { fill: #1f2328; }
.faint { fill: #5c6670; }
.grid { stroke: #d8dde3; stroke-width: 1; }
.axis { stroke: #5c6670; stroke-width: 1; }
.curve { fill: none; stroke-width: 2; stroke-linejoin: round; }
.limit { stroke: #5c6670; stroke-width: 1.5; stroke-dasharray: 1 4; stroke-linecap: round; }
.bar { stroke-width: 1.5; }
.empty { fill: #eef0f3; }
.on-dark { fill: #ffffff; }
.on-light { fill: #10203a; }
@media (prefers-color-scheme: dark) {
.paper { fill: #14171c; }
.ink { fill: #e8eaed; }
.faint { fill: #a3adb8; }
.grid { stroke: #333a43; }
.axis { stroke: #a3adb8; }
.limit { stroke: #a3adb8; }
.empty { fill: #262c34; }
}
";

/// A position in the picture, right and down from its upper left corner, in pixels.
pub type Point = (f64, f64);

/// The elements written so far.
#[derive(Debug, Default)]
pub struct Svg(String);

impl Svg {
    /// Text that starts, ends or has its middle at a point, as `class` says.
    pub fn text(&mut self, (x, y): Point, class: &str, text: &str) {
        let attributes = [("x", pixels(x)), ("y", pixels(y)), ("class", escape(class))];
        self.element("text", &attributes, Some(text));
    }

    /// A straight line in the style of `class`.
    pub fn line(&mut self, (x1, y1): Point, (x2, y2): Point, class: &str) {
        let ends = [("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2)];
        let ends = ends.map(|(name, value)| (name, pixels(value)));
        let attributes: Vec<_> = ends.into_iter().chain([("class", escape(class))]).collect();
        self.element("line", &attributes, None);
    }

    /// A short piece of a curve, for a legend.
    pub fn curve_sample(&mut self, (x1, y1): Point, (x2, y2): Point, stroke: Stroke<'_>) {
        let ends = [("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2)];
        let ends = ends.map(|(name, value)| (name, pixels(value)));
        let attributes: Vec<_> = ends.into_iter().chain(stroke.attributes()).collect();
        self.element("line", &attributes, None);
    }

    /// A line through all of `points`.
    pub fn curve(&mut self, points: &[Point], stroke: Stroke<'_>) {
        let points: Vec<String> =
            points.iter().map(|(x, y)| format!("{},{}", pixels(*x), pixels(*y))).collect();
        let points = ("points", points.join(" "));
        let attributes: Vec<_> = std::iter::once(points).chain(stroke.attributes()).collect();
        self.element("polyline", &attributes, None);
    }

    /// A rectangle with a class, or with a colour of its own.
    pub fn rectangle(&mut self, (x, y): Point, (width, height): Point, fill: Fill<'_>) {
        let fill = match fill {
            Fill::Class(class) => ("class", escape(class)),
            Fill::Colour(colour) => ("fill", escape(colour)),
        };
        let sides = [("x", x), ("y", y), ("width", width), ("height", height)];
        let sides = sides.map(|(name, value)| (name, pixels(value)));
        let attributes: Vec<_> = sides.into_iter().chain([("rx", "3".to_owned()), fill]).collect();
        self.element("rect", &attributes, None);
    }

    /// Completes the file and returns it.
    #[must_use]
    pub fn finish(self, width: f64, height: f64) -> String {
        let (width, height) = (pixels(width), pixels(height));
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n\
             <rect width=\"{width}\" height=\"{height}\" class=\"paper\"/>\n{}</svg>\n",
            self.0
        )
    }

    pub(crate) fn element(
        &mut self,
        name: &str,
        attributes: &[(&str, String)],
        text: Option<&str>,
    ) {
        self.push(format_args!("<{name}"));
        for (key, value) in attributes {
            self.push(format_args!(" {key}=\"{value}\""));
        }
        match text {
            Some(text) => self.push(format_args!(">{}</{name}>\n", escape(text))),
            None => self.push(format_args!("/>\n")),
        }
    }

    fn push(&mut self, text: impl Display) {
        write!(self.0, "{text}").expect("a String takes everything");
    }
}

/// The style of a curve.
#[derive(Debug, Clone, Copy)]
pub struct Stroke<'a> {
    /// The colour, in the syntax of SVG.
    pub colour: &'a str,
    /// Lengths of dashes and gaps; empty for a solid line.
    pub dashes: &'a str,
}

impl Stroke<'_> {
    fn attributes(self) -> impl Iterator<Item = (&'static str, String)> {
        let dashes = (!self.dashes.is_empty()).then(|| ("stroke-dasharray", escape(self.dashes)));
        [("class", "curve".to_owned()), ("stroke", escape(self.colour))].into_iter().chain(dashes)
    }
}

/// The fill of a rectangle.
#[derive(Debug, Clone, Copy)]
pub enum Fill<'a> {
    /// The style of this class, which may differ between the schemes.
    Class(&'a str),
    /// This colour in both schemes.
    Colour(&'a str),
}

/// A tenth of a pixel is finer than any screen.
pub(crate) fn pixels(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::*;

    #[test]
    fn markup_in_text_and_attributes_stays_text() {
        let mut svg = Svg::default();
        let name = "</text><script>&\"'\u{1}\n";
        svg.text((1.0, 2.0), "\" onload=\"x", name);
        svg.curve(&[(0.0, 0.0), (1.0, 1.0)], Stroke { colour: "\"><b/>", dashes: "" });
        let file = svg.finish(10.0, 10.0);
        let document = Document::parse(&file).unwrap_or_else(|error| panic!("{error}:\n{file}"));
        let texts: Vec<_> = document.descendants().filter(|it| it.has_tag_name("text")).collect();
        assert_eq!(texts.len(), 1);
        assert_eq!(texts[0].text(), Some("</text><script>&\"'\u{fffd} "));
        assert_eq!(texts[0].attribute("class"), Some("\" onload=\"x"));
        assert!(
            !document.descendants().any(|it| it.has_tag_name("b") || it.has_tag_name("script"))
        );
    }

    #[test]
    fn a_picture_has_colours_for_light_and_dark() {
        let file = Svg::default().finish(10.0, 10.0);
        assert!(file.contains("@media (prefers-color-scheme: dark)"));
        let (light, dark) = file.split_once("@media").expect("there is a second scheme");
        for class in ["paper", "ink", "faint", "grid", "axis", "limit"] {
            let rule = format!(".{class} {{");
            assert!(light.contains(&rule) && dark.contains(&rule), "{class}");
        }
    }
}
