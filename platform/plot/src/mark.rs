//! Draws what stands for values: bars, ranges and points, in patterns that need no colour.

use crate::{
    Svg,
    svg::{Point, pixels},
};

/// The distance of two lines of a hatch.
const HATCH: f64 = 5.0;

/// Half the width of the end of a range, and of a marker.
const CAP: f64 = 3.5;
const MARKER: f64 = 4.5;

/// How a bar or a marker is filled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// All of it, in its colour.
    Solid,
    /// With slanted lines in an outline; a marker only with its outline.
    Hatched,
    /// Not at all, in an outline of dashes; a marker only with its outline.
    Dashed,
}

/// The form of a marker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// A disc.
    Circle,
    /// A square on its side.
    Square,
    /// A triangle that points up.
    Triangle,
    /// A square on its corner.
    Diamond,
}

impl Shape {
    /// All of them, in the order in which they are assigned.
    pub const ALL: [Self; 4] = [Self::Circle, Self::Square, Self::Triangle, Self::Diamond];

    /// Around the origin, in pixels; a circle has no corners.
    fn corners(self) -> &'static [Point] {
        match self {
            Self::Circle => &[],
            Self::Square => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
            Self::Triangle => &[(0.0, -1.2), (1.1, 0.8), (-1.1, 0.8)],
            Self::Diamond => &[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)],
        }
    }
}

impl Svg {
    /// A bar from its upper left corner, with straight ends, so that its length is its value.
    pub fn bar(&mut self, (x, y): Point, size: Point, pattern: Pattern, colour: &str) {
        let sides = [("x", x), ("y", y), ("width", size.0), ("height", size.1)];
        let sides = sides.map(|(name, value)| (name, pixels(value)));
        let look = paint("bar", pattern, colour);
        self.element("rect", &sides.into_iter().chain(look).collect::<Vec<_>>(), None);
        if pattern == Pattern::Hatched {
            self.path("hatch", &hatch((x, y), size), Some(colour));
        }
    }

    /// The range of a value, with ends across it.
    pub fn range(&mut self, from: Point, to: Point) {
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        if length <= 0.0 {
            return;
        }
        let across = (CAP * (to.1 - from.1) / length, CAP * (to.0 - from.0) / length);
        let end = |(x, y): Point| ((x - across.0, y - across.1), (x + across.0, y + across.1));
        let lines = [(from, to), end(from), end(to)];
        self.path("halo", &lines, None);
        self.path("range", &lines, None);
    }

    /// A small shape around a point.
    pub fn marker(&mut self, (x, y): Point, shape: Shape, pattern: Pattern, colour: &str) {
        // The dashes of an outline that is so small would not be seen.
        let pattern = if pattern == Pattern::Solid { pattern } else { Pattern::Hatched };
        let look = paint("marker", pattern, colour);
        let corners = shape.corners().iter().map(|it| (x + MARKER * it.0, y + MARKER * it.1));
        let corners: Vec<_> =
            corners.map(|(x, y)| format!("{},{}", pixels(x), pixels(y))).collect();
        if corners.is_empty() {
            let place = [("cx", pixels(x)), ("cy", pixels(y)), ("r", pixels(MARKER))];
            self.element("circle", &place.into_iter().chain(look).collect::<Vec<_>>(), None);
        } else {
            let place = [("points", corners.join(" "))];
            self.element("polygon", &place.into_iter().chain(look).collect::<Vec<_>>(), None);
        }
    }

    fn path(&mut self, class: &str, lines: &[(Point, Point)], colour: Option<&str>) {
        let line = |((x1, y1), (x2, y2)): &(Point, Point)| {
            format!("M{} {}L{} {}", pixels(*x1), pixels(*y1), pixels(*x2), pixels(*y2))
        };
        let steps: String = lines.iter().map(line).collect();
        let stroke = colour.map(|it| ("stroke", crate::escape(it)));
        let attributes = [("class", class.to_owned()), ("d", steps)].into_iter().chain(stroke);
        self.element("path", &attributes.collect::<Vec<_>>(), None);
    }
}

/// The attributes of an area.
fn paint(class: &str, pattern: Pattern, colour: &str) -> Vec<(&'static str, String)> {
    let colour = crate::escape(colour);
    match pattern {
        Pattern::Solid => {
            vec![("class", class.to_owned()), ("stroke", colour.clone()), ("fill", colour)]
        }
        Pattern::Hatched => vec![("class", format!("{class} hollow")), ("stroke", colour)],
        Pattern::Dashed => vec![
            ("class", format!("{class} hollow")),
            ("stroke", colour),
            ("stroke-dasharray", "4 2.5".to_owned()),
        ],
    }
}

/// Slanted lines that end at the sides of a rectangle.
fn hatch((x, y): Point, (width, height): Point) -> Vec<(Point, Point)> {
    let starts = (1..).map(|step| HATCH * f64::from(step) - height);
    let inside = starts.take_while(|start| *start < width);
    inside
        .map(|start| {
            let (from, to) = (start.max(0.0), (start + height).min(width));
            ((x + from, y + height - (from - start)), (x + to, y + height - (to - start)))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use roxmltree::Document;

    use super::*;

    #[test]
    fn a_hatch_stays_in_its_rectangle_and_covers_it() {
        for size in [(3.0, 12.0), (12.0, 12.0), (200.0, 12.0)] {
            let lines = hatch((10.0, 20.0), size);
            for (x, y) in lines.iter().flat_map(|(from, to)| [from, to]) {
                assert!((10.0..=10.0 + size.0).contains(x), "{x} of {size:?}");
                assert!((20.0..=20.0 + size.1).contains(y), "{y} of {size:?}");
            }
            let last = lines.last().expect("every bar has a line").1;
            assert!(10.0 + size.0 - last.0 <= HATCH, "{last:?} of {size:?}");
        }
        assert_eq!(hatch((0.0, 0.0), (0.0, 0.0)), []);
    }

    #[test]
    fn patterns_differ_without_their_colours() {
        let drawn = |pattern| {
            let mut svg = Svg::default();
            svg.bar((0.0, 0.0), (40.0, 10.0), pattern, "blue");
            svg.finish(50.0, 50.0).replace("blue", "").split_once("</style>").unwrap().1.to_owned()
        };
        let [solid, hatched, dashed] =
            [Pattern::Solid, Pattern::Hatched, Pattern::Dashed].map(drawn);
        assert!(!solid.contains("hollow") && hatched.contains("class=\"hatch\""), "{hatched}");
        assert!(dashed.contains("stroke-dasharray") && !hatched.contains("stroke-dasharray"));
    }

    #[test]
    fn a_range_ends_at_its_values_and_is_no_line_if_they_are_equal() {
        let mut svg = Svg::default();
        svg.range((5.0, 5.0), (5.0, 5.0));
        svg.range((10.0, 20.0), (30.0, 20.0));
        svg.range((40.0, 60.0), (40.0, 50.0));
        let file = svg.finish(50.0, 70.0);
        let document = Document::parse(&file).unwrap();
        let ranges = document.descendants().filter(|it| it.attribute("class") == Some("range"));
        let paths: Vec<_> = ranges.filter_map(|it| it.attribute("d")).collect();
        assert_eq!(
            paths,
            [
                "M10 20L30 20M10 16.5L10 23.5M30 16.5L30 23.5",
                "M40 60L40 50M43.5 60L36.5 60M43.5 50L36.5 50"
            ]
        );
    }

    #[test]
    fn every_shape_is_another_element_around_its_point() {
        let drawn = |shape| {
            let mut svg = Svg::default();
            svg.marker((10.0, 10.0), shape, Pattern::Solid, "blue");
            svg.finish(20.0, 20.0)
        };
        let drawings: std::collections::BTreeSet<_> = Shape::ALL.map(drawn).into();
        assert_eq!(drawings.len(), Shape::ALL.len());
        for drawing in drawings {
            assert!(Document::parse(&drawing).is_ok(), "{drawing}");
        }
    }
}
