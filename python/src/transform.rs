//! What the samples of a job become, for Python: the form of a row, and the draws of each sample.

use pyo3::{exceptions::PyValueError, prelude::*, types::PyTuple};
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

    /// Bytes of a row.
    #[getter]
    fn row_bytes(&self) -> u64 {
        self.steps.row_bytes()
    }

    /// Whether a step draws something.
    #[getter]
    fn is_random(&self) -> bool {
        self.steps.is_random()
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

/// Adds the class to the module.
pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Pipeline>()
}
