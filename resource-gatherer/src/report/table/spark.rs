//! Draws a curve into one line of block characters.

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// How wide a curve may get.
const WIDTH_MAX: usize = 12;

/// A block for each of `values`, from zero to the highest. Of many values, some are left out evenly.
pub(super) fn spark(values: &[f64]) -> String {
    let highest = values.iter().copied().fold(0.0, f64::max);
    if highest <= 0.0 {
        return String::new();
    }
    let count = values.len().min(WIDTH_MAX);
    let chosen = (0..count).map(|index| match count {
        1 => 0,
        _ => index * (values.len() - 1) / (count - 1),
    });
    chosen.map(|index| block(values[index] / highest)).collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the share is clamped to 0..=1"
)]
fn block(share: f64) -> char {
    BLOCKS[(share.clamp(0.0, 1.0) * 7.0).round() as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_value_is_a_whole_block_and_zero_the_lowest() {
        assert_eq!(spark(&[0.0, 50.0, 100.0]), "▁▅█");
        assert_eq!(spark(&[7.0]), "█");
        assert_eq!((spark(&[]), spark(&[0.0])), (String::new(), String::new()));
    }

    #[test]
    fn many_values_keep_the_first_and_the_last() {
        let values: Vec<f64> = (0..100).map(f64::from).collect();
        let curve = spark(&values);
        assert_eq!(curve.chars().count(), WIDTH_MAX);
        assert!(curve.starts_with('▁') && curve.ends_with('█'));
    }
}
