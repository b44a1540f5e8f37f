//! The figures that are read from the report of a run.

use super::*;

fn report(job: &str, steps: u64, wall_s: f64, stall_s: f64) -> String {
    format!(
        "{{\"job\": \"{job}\", \"steps\": {steps}, \"wall_s\": {wall_s}, \"stall_s\": {stall_s}, \
         \"batch_wait_s\": {{\"p50\": 0.0, \"p99\": 0.5, \"max\": 1.0}}, \"other\": []}}"
    )
}

#[test]
fn a_step_is_the_time_of_a_run_without_waits_over_the_steps_of_a_rank() {
    let job = job("world: { nodes: 1, ranks_per_node: 2 }\n");
    let observed = Observed::parse(&report("a", 40, 6.0, 2.0), &job).unwrap();
    assert_eq!(observed.step_time, Some(Nanoseconds(200_000_000)));
    assert!((observed.stall_percent - 100.0 / 3.0).abs() < 1e-9);
    assert_eq!(
        observed.to_string(),
        "200 ms between two batches; waited 2.000 s (33.3 %), a batch 0.500 s p99"
    );
    let sizes = Sizes::from(&index());
    let demand = Demand::at(&job, &sizes, observed.step_time).unwrap();
    assert_eq!(demand.rank.unwrap().bytes, BytesPerSecond(250_000));
}

#[test]
fn a_report_that_cannot_be_used_is_refused() {
    let said = |text: &str| Observed::parse(text, &job("")).unwrap_err().to_string();
    assert!(said("{}").starts_with("not the report of a run: missing field"), "{}", said("{}"));
    assert!(said("[").starts_with("not the report of a run"));
    assert_eq!(said(&report("b", 1, 1.0, 0.0)), "the report of the job `b`, not of `a`");
    for (steps, wall, stall) in [(0, 1.0, 0.0), (1, 0.0, 0.0), (1, 1.0, 2.0), (1, 1.0, -1.0)] {
        assert!(
            said(&report("a", steps, wall, stall)).ends_with("a run that took batches is needed")
        );
    }
}
