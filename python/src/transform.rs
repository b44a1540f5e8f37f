//! The transform of the samples of a job, for Python: the form of a row, and the draws of each sample.

use pyo3::{
    buffer::PyBuffer,
    exceptions::PyValueError,
    prelude::*,
    types::{PyBytes, PyTuple},
};
use tierfeed_dataset::format::{
    fields::{self, Field, Value},
    tfrecord::Feature,
};
use tierfeed_transform::{
    DrawKey, Operation, PipelineFile, Region, Size, Work, pipeline::Pipeline as Steps,
};

/// The checked steps of a transform.
#[pyclass(frozen, eq, module = "tierfeed._native")]
#[derive(PartialEq)]
pub(crate) struct Pipeline {
    steps: Steps,
}

#[pymethods]
impl Pipeline {
    /// Checks the steps of a mapping, which comes as JSON.
    #[staticmethod]
    fn parse(text: &str) -> PyResult<Self> {
        let wrong = |error: String| PyValueError::new_err(error);
        let file: PipelineFile =
            serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(text))
                .map_err(|error| wrong(without_position(&error)))?;
        let steps = Steps::try_new(&file).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { steps })
    }

    /// The canonical mapping, as JSON.
    #[getter]
    fn text(&self) -> PyResult<String> {
        serde_json::to_string(&self.steps).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The dimensions of a row.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.steps.output().shape)
    }

    /// The type of its elements, as NumPy names it.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.steps.output().dtype.name()
    }

    /// The order of the dimensions of an image, `"chw"` or `"hwc"`; `None` for what is no image.
    #[getter]
    fn layout(&self) -> Option<&'static str> {
        self.steps.output().layout.map(tierfeed_transform::Layout::name)
    }

    /// Whether samples have fields beside the one that becomes the row.
    #[getter]
    fn has_fields(&self) -> bool {
        self.steps.container().is_some()
    }

    /// The other fields of a sample, from its stored bytes: for each its name, its encoding, and what it holds as
    /// bytes, or as a list of bytes or of numbers.
    fn fields<'py>(
        &self,
        py: Python<'py>,
        stored: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<(String, String, Bound<'py, PyAny>)>> {
        let Some(container) = self.steps.container() else { return Ok(Vec::new()) };
        // A copy: another process could write to the bytes while they are read.
        let stored = PyBuffer::<u8>::get(stored)?.to_vec(py)?;
        let wrong = |error: &dyn std::error::Error| PyValueError::new_err(error.to_string());
        let mut fields = fields::split(container, &stored).map_err(|error| wrong(&error))?;
        let row = fields::chosen(&fields, self.steps.field()).map_err(|error| wrong(&error))?;
        fields.remove(row);
        fields.into_iter().map(|field| as_python(py, field)).collect()
    }

    /// What the steps do to an image of this size: the name of each operation, and its numbers.
    ///
    /// `pad`: top, left, height, width; `crop`: the same; `resize`: height, width; `flip_horizontal`: none.
    fn operations(
        &self,
        seed: u64,
        epoch: u32,
        sample: u64,
        height: u32,
        width: u32,
    ) -> PyResult<Vec<(&'static str, Vec<u32>)>> {
        let Work::Images(images) = self.steps.work() else { return Ok(Vec::new()) };
        if height == 0 || width == 0 {
            let wrong = format!("an image of {height} by {width} pixels; both must be 1 or more");
            return Err(PyValueError::new_err(wrong));
        }
        let key = DrawKey { seed, epoch, sample };
        let operations = images.operations(key, Size { height, width }, 0);
        let operations = operations.map_err(|error| PyValueError::new_err(error.to_string()))?;
        Ok(operations.into_iter().map(named).collect())
    }

    fn __repr__(&self) -> String {
        let output = self.steps.output();
        format!("Pipeline(shape={:?}, dtype={:?})", output.shape, output.dtype.name())
    }
}

fn as_python<'py>(
    py: Python<'py>,
    field: Field<'_>,
) -> PyResult<(String, String, Bound<'py, PyAny>)> {
    let bytes = |bytes| PyBytes::new(py, bytes).into_any();
    let (encoding, value) = match field.value {
        Value::Member(member) => ("member".to_owned(), bytes(member)),
        Value::Encoded { encoding, bytes: column } => (encoding, bytes(column)),
        Value::Feature(Feature::Bytes(pieces)) => {
            let pieces: Vec<_> = pieces.into_iter().map(bytes).collect();
            ("list".to_owned(), pieces.into_pyobject(py)?)
        }
        Value::Feature(Feature::Integers(integers)) => {
            ("list".to_owned(), integers.into_pyobject(py)?)
        }
        Value::Feature(Feature::Floats(floats)) => ("list".to_owned(), floats.into_pyobject(py)?),
    };
    Ok((field.name, encoding, value))
}

/// The message of the parser without the position in a text that no user wrote.
fn without_position(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let said = error.inner();
    let position = format!(" at line {} column {}", said.line(), said.column());
    format!("{}: {}", error.path(), said.to_string().replace(&position, ""))
}

fn named(operation: Operation) -> (&'static str, Vec<u32>) {
    match operation {
        Operation::Pad { top, left, size } => ("pad", vec![top, left, size.height, size.width]),
        Operation::Crop(Region { top, left, size }) => {
            ("crop", vec![top, left, size.height, size.width])
        }
        Operation::Resize(size) => ("resize", vec![size.height, size.width]),
        Operation::FlipHorizontal => ("flip_horizontal", Vec::new()),
    }
}

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Pipeline>()
}
