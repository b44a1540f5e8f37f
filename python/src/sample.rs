//! One sample of a batch: its bytes, its id and its label.

use pyo3::prelude::*;

use crate::view::{Slice, View};

/// The bytes of one sample, where they were staged or in place in a tier.
#[pyclass(frozen, extends = View, weakref, module = "tierfeed")]
pub(crate) struct Sample {
    id: u32,
    label: i64,
    stored: Option<Slice>,
}

impl Sample {
    pub(crate) fn new(
        slice: Slice,
        id: u32,
        label: i64,
        stored: Option<Slice>,
    ) -> PyClassInitializer<Self> {
        PyClassInitializer::from(View::new(slice)).add_subclass(Self { id, label, stored })
    }
}

#[pymethods]
impl Sample {
    /// Its position in the dataset's index.
    #[getter]
    fn id(&self) -> u32 {
        self.id
    }

    /// Its class, or -1 where the dataset has none.
    #[getter]
    fn label(&self) -> i64 {
        self.label
    }

    /// The stored bytes of a sample of which a transform took one field; `None` for any other.
    #[getter]
    fn stored(&self) -> Option<View> {
        self.stored.clone().map(View::new)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let nbytes = slf.len()?;
        let Self { id, label, .. } = slf.get();
        Ok(format!("Sample(id={id}, label={label}, nbytes={nbytes})"))
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Sample>()
}
