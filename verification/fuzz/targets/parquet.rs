//! Parquet files, by row groups and by columns.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tierfeed_dataset::format::parquet::{self, Layout, Unit};
use tierfeed_fuzz::{assert_within, parsed};

fuzz_target!(|input: &[u8]| {
    let read = |unit, columns: &[String]| -> Option<Layout> {
        let layout = parsed(input, |object| parquet::ranges(object, unit, columns))?;
        assert_within(input, &layout.ranges);
        assert_within(input, &[layout.footer]);
        assert_eq!(layout.ranges.len(), layout.rows.len());
        Some(layout)
    };
    let (Some(groups), Some(chunks)) = (read(Unit::RowGroup, &[]), read(Unit::ColumnChunk, &[]))
    else {
        return;
    };
    assert_eq!(chunks.ranges.len(), groups.ranges.len() * chunks.columns.len());
    if let Some(last) = chunks.columns.last() {
        read(Unit::ColumnChunk, std::slice::from_ref(last));
    }
});
