//! Weights along one axis, in whole numbers.

use std::ops::Range;

/// Room for weights of 0 behind those of an output, so that kernels can take four at a time.
const GROUP: usize = 4;

/// The precision stays below this many bits, so that sums fit 32 bits.
const PRECISION_MAX: u32 = 22;

/// The weights of some outputs of one axis.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    precision: u32,
    /// Weights of each output in `table`, a multiple of [`GROUP`].
    stride: usize,
    spans: Vec<Range<u32>>,
    table: Vec<i16>,
    /// Of one output, before they are rounded.
    exact: Vec<f64>,
}

/// What one output is the mean of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taps<'a> {
    /// The first input.
    pub(crate) first: u32,
    /// The weights of the inputs from there on.
    pub(crate) weights: &'a [i16],
    /// The same, and 0 up to a multiple of four.
    pub(crate) groups: &'a [[i16; GROUP]],
}

impl Weights {
    /// Computes the weights of a range of outputs when an axis of `from` pixels becomes one of `to`.
    pub(crate) fn compute(&mut self, from: u32, to: u32, range: Range<u32>) {
        let axis = Axis::new(from, to);
        self.stride = axis.taps_max().next_multiple_of(GROUP);
        self.precision = axis.precision(to, &mut self.exact);
        self.spans.clear();
        self.table.clear();
        for output in range {
            let span = axis.span(output);
            axis.weights(output, &span, &mut self.exact);
            let end = self.table.len() + self.stride;
            self.table.extend(self.exact.iter().map(|it| rounded(*it, self.precision)));
            self.table.resize(end, 0);
            self.spans.push(span);
        }
    }

    /// The bits that are fractions of 1.
    pub(crate) fn precision(&self) -> u32 {
        self.precision
    }

    /// Each output in turn.
    pub(crate) fn outputs(&self) -> impl ExactSizeIterator<Item = Taps<'_>> {
        self.spans.iter().zip(self.table.chunks_exact(self.stride)).map(|(span, padded)| {
            let count = (span.end - span.start) as usize;
            let groups = &padded[..count.next_multiple_of(GROUP)];
            Taps {
                first: span.start,
                weights: &padded[..count],
                groups: groups.as_chunks::<GROUP>().0,
            }
        })
    }
}

/// The inputs that a range of outputs depends on.
pub(crate) fn needed(from: u32, to: u32, range: Range<u32>) -> Range<u32> {
    if from == to {
        return range;
    }
    let axis = Axis::new(from, to);
    axis.span(range.start).start..axis.span(range.end - 1).end
}

struct Axis {
    from: u32,
    scale: f64,
    support: f64,
}

impl Axis {
    fn new(from: u32, to: u32) -> Self {
        assert!(from > 0 && to > 0, "an axis of {from} pixels cannot become one of {to}");
        let scale = f64::from(from) / f64::from(to);
        Self { from, scale, support: scale.max(1.0) }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the support is positive and at most 2^32"
    )]
    fn taps_max(&self) -> usize {
        self.support.ceil() as usize * 2 + 1
    }

    fn center(&self, output: u32) -> f64 {
        self.scale * (f64::from(output) + 0.5)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts saturate, and cut the fraction off as the model does"
    )]
    fn span(&self, output: u32) -> Range<u32> {
        let center = self.center(output);
        let start = (center - self.support + 0.5) as u32;
        let end = ((center + self.support + 0.5) as u32).min(self.from);
        let count = (end.saturating_sub(start) as usize).min(self.taps_max());
        start..start + u32::try_from(count).expect("no more than the inputs")
    }

    fn weights(&self, output: u32, span: &Range<u32>, weights: &mut Vec<f64>) {
        let center = self.center(output);
        let inverse = 1.0 / self.scale.max(1.0);
        weights.clear();
        weights.extend(
            span.clone().map(|input| triangle((f64::from(input) - center + 0.5) * inverse)),
        );
        // In the order of the model: sums of floats depend on it.
        let total: f64 = weights.iter().sum();
        if total != 0.0 {
            weights.iter_mut().for_each(|it| *it /= total);
        }
    }

    /// As many bits as the largest weight leaves of 16.
    fn precision(&self, to: u32, weights: &mut Vec<f64>) -> u32 {
        let mut largest = 0.0_f64;
        for output in 0..to {
            self.weights(output, &self.span(output), weights);
            largest = weights.iter().copied().fold(largest, f64::max);
        }
        (0..PRECISION_MAX)
            .find(|it| 0.5 + largest * f64::from(1_u32 << (it + 1)) >= f64::from(1_u32 << 15))
            .unwrap_or(PRECISION_MAX)
    }
}

fn triangle(distance: f64) -> f64 {
    (1.0 - distance.abs()).max(0.0)
}

#[expect(clippy::cast_possible_truncation, reason = "the precision keeps weights within 16 bits")]
fn rounded(weight: f64, precision: u32) -> i16 {
    (0.5 + weight * f64::from(1_u32 << precision)) as i16
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// An axis of inputs, one of outputs, and one of the outputs.
    fn axes() -> impl Strategy<Value = (u32, u32, u32)> {
        (1_u32..3000, 1_u32..600).prop_flat_map(|(from, to)| (Just(from), Just(to), 0..to))
    }

    proptest! {
        #[test]
        fn weights_of_an_output_are_one_together((from, to, output) in axes()) {
            let mut weights = Weights::default();
            weights.compute(from, to, output..output + 1);
            let taps = weights.outputs().next().expect("one output");
            let sum: i64 = taps.weights.iter().map(|it| i64::from(*it)).sum();
            let count = u32::try_from(taps.weights.len()).expect("no more than inputs");
            let one = 1_i64 << weights.precision();
            prop_assert!((sum - one).abs() <= i64::from(count), "{sum} is not {one}");
            prop_assert!(taps.first + count <= from);
        }

        #[test]
        fn a_range_of_outputs_has_the_weights_of_the_whole_axis((from, to, start) in axes()) {
            prop_assume!(from != to);
            let (mut all, mut part) = (Weights::default(), Weights::default());
            all.compute(from, to, 0..to);
            part.compute(from, to, start..to);
            prop_assert_eq!(all.precision(), part.precision());
            for (whole, part) in all.outputs().skip(start as usize).zip(part.outputs()) {
                prop_assert_eq!((whole.first, whole.weights), (part.first, part.weights));
            }
        }
    }
}
