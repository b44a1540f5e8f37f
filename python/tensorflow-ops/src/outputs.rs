//! A batch as the outputs of the op that hands it out.

use crate::{
    batch::{Answer, Form},
    c_api::{Context, Failure},
};

/// Sets the outputs of `TierfeedBatch`.
pub(crate) fn fill(context: &Context<'_>, form: Form, answer: &Answer) -> Result<(), Failure> {
    let Answer { staged, ticket } = answer;
    let rows = &staged.rows;
    let count = as_i64(rows.len());
    match form {
        Form::Array(len) => {
            let shape = [count, as_i64(len)];
            context.set_memory(0, &shape, &staged.memory, 0, rows.len() * len)?;
        }
        Form::Rows => {
            let end = staged.end();
            context.set_memory(0, &[as_i64(end)], &staged.memory, 0, end)?;
        }
    }
    let columns: [Vec<i64>; 4] = [
        rows.iter().map(|row| as_i64(row.start)).collect(),
        rows.iter().map(|row| as_i64(row.len)).collect(),
        rows.iter().map(|row| row.label).collect(),
        rows.iter().map(|row| i64::from(row.sample)).collect(),
    ];
    for (index, column) in (1..).zip(&columns) {
        context.set_numbers(index, &[count], column)?;
    }
    context.set_numbers(5, &[], &[*ticket])?;
    let fields: Vec<&[u8]> = staged.fields.iter().map(Vec::as_slice).collect();
    context.set_strings(6, &fields)
}

fn as_i64(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
