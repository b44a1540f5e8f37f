use super::*;

const ACCESSES: u32 = 8000;

fn rows(schedule: Schedule, cached: f64) -> Vec<Row> {
    measure(Case { schedule, cached }, ACCESSES, 4)
}

fn ready(schedule: Schedule, cached: f64, bandwidth: f64) -> f64 {
    let is = |row: &&Row| (row.bandwidth - bandwidth).abs() < 1e-9;
    rows(schedule, cached).iter().find(is).unwrap().ready
}

#[test]
fn schedules_are_ready_as_often_as_the_other_simulation_found() {
    for schedule in Schedule::ALL {
        for cached in [0.296, 0.75] {
            for row in rows(schedule, cached) {
                let Some(found) = row.table else { continue };
                assert!((row.ready - found).abs() < 0.02, "{found} found: {row:?}");
            }
        }
    }
}

#[test]
fn no_schedule_exceeds_the_bound_or_undercuts_the_minimum() {
    for schedule in Schedule::ALL {
        for row in rows(schedule, 0.5) {
            assert!(row.ready <= row.bound + 0.005, "{row:?}");
            assert!(row.cold >= row.minimal_cold - 1e-9, "{row:?}");
        }
    }
}

#[test]
fn fetching_early_reads_what_retention_had_saved() {
    let cold = |schedule| rows(schedule, 0.75).last().unwrap().cold;
    assert!(cold(Schedule::Earliest) > 1.3 * cold(Schedule::GapInTime));
}

#[test]
fn bunched_misses_waste_bandwidth() {
    let belady = ready(Schedule::BeladyInTime, 0.296, 0.5);
    assert!(belady + 0.1 < ready(Schedule::GapInTime, 0.296, 0.5), "{belady}");
}

#[test]
fn gap_in_time_meets_its_marks_and_worse_schedules_would_not() {
    for row in rows(Schedule::GapInTimeBeside, 0.5) {
        assert_eq!(row.is_met, Some(true), "{row:?}");
        let late = Row { ready: row.bound - 0.011, ..row.clone() };
        assert_eq!(is_met(&late), Some(false));
        let greedy = Row { cold: row.minimal_cold * 1.011, ..row };
        assert_eq!(is_met(&greedy), Some(false));
    }
}

#[test]
fn staging_is_never_deeper_than_it_is() {
    // A hit for each of ten reads, then ten misses: four are staged, bandwidth fetches every other one.
    let misses: Vec<bool> = (0..20).map(|at| at >= 10).collect();
    let tally = staged::run(&misses, 0, Staging { slots: 4 }, Bandwidth(500));
    // Reads 10 to 13 were staged before. The slots from 10 on fetch 14 to 18, each before it is read, and
    // 19 is late.
    assert_eq!(tally.cold, 10);
    assert_eq!(tally.reads - tally.ready, 1);
}
