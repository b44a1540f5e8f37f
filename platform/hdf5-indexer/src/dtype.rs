//! Names the type of the elements of a dataset.

use hdf5_metno::{
    Datatype,
    datatype::ByteOrder,
    types::{FloatSize, IntSize, TypeDescriptor},
};

use crate::error::IndexError;

/// The name of `datatype` in NumPy's notation, such as `<f4`; structures as `{x: <f4, y: <i2}`.
///
/// # Errors
///
/// [`IndexError::Pointers`] if the elements point to their bytes instead of having them.
pub(crate) fn name(datatype: &Datatype) -> Result<String, IndexError> {
    let descriptor = datatype.to_descriptor().map_err(IndexError::Library)?;
    let order = match datatype.byte_order() {
        ByteOrder::LittleEndian => '<',
        ByteOrder::BigEndian => '>',
        ByteOrder::None => '|',
        // The byte order of each field is not reported; the trainer reads it from the file.
        ByteOrder::Vax | ByteOrder::Mixed => '?',
    };
    spell(&descriptor, order)
}

fn spell(descriptor: &TypeDescriptor, order: char) -> Result<String, IndexError> {
    Ok(match descriptor {
        TypeDescriptor::Integer(size) => number('i', *size, order),
        TypeDescriptor::Unsigned(size) => number('u', *size, order),
        TypeDescriptor::Float(FloatSize::U2) => format!("{order}f2"),
        TypeDescriptor::Float(FloatSize::U4) => format!("{order}f4"),
        TypeDescriptor::Float(FloatSize::U8) => format!("{order}f8"),
        TypeDescriptor::Boolean => "|b1".to_owned(),
        TypeDescriptor::Enum(it) => number(if it.signed { 'i' } else { 'u' }, it.size, order),
        TypeDescriptor::FixedAscii(len) | TypeDescriptor::FixedUnicode(len) => format!("|S{len}"),
        TypeDescriptor::FixedArray(item, len) => format!("{}[{len}]", spell(item, order)?),
        TypeDescriptor::Compound(it) => {
            let field = |field: &hdf5_metno::types::CompoundField| {
                Ok(format!("{}: {}", field.name, spell(&field.ty, order)?))
            };
            let fields = it.fields.iter().map(field).collect::<Result<Vec<_>, IndexError>>()?;
            format!("{{{}}}", fields.join(", "))
        }
        TypeDescriptor::VarLenArray(_)
        | TypeDescriptor::VarLenAscii
        | TypeDescriptor::VarLenUnicode
        | TypeDescriptor::Reference(_) => {
            return Err(IndexError::Pointers { dtype: descriptor.to_string() });
        }
    })
}

fn number(kind: char, size: IntSize, order: char) -> String {
    let order = if size == IntSize::U1 { '|' } else { order };
    format!("{order}{kind}{}", size as usize)
}
