//! Messages of gRPC as JSON, long answers compressed: the types derive how they travel, so there is no second
//! definition of them.

use std::marker::PhantomData;

use bytes::{Buf as _, BufMut as _};
use serde::{Serialize, de::DeserializeOwned};
use tonic::{
    Status,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
};

/// Encodes `E` and decodes `D`.
pub(crate) struct Json<E, D>(PhantomData<fn(E) -> D>);

impl<E, D> Default for Json<E, D> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<E, D> Codec for Json<E, D>
where
    E: Serialize + Send + 'static,
    D: DeserializeOwned + Send + 'static,
{
    type Encode = E;
    type Decode = D;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self::default()
    }

    fn decoder(&mut self) -> Self {
        Self::default()
    }
}

impl<E: Serialize, D> Encoder for Json<E, D> {
    type Item = E;
    type Error = Status;

    fn encode(&mut self, message: E, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        serde_json::to_writer(buffer.writer(), &message)
            .map_err(|error| Status::internal(format!("a message cannot be written: {error}")))
    }
}

impl<E, D: DeserializeOwned> Decoder for Json<E, D> {
    type Item = D;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<D>, Status> {
        let message = buffer.copy_to_bytes(buffer.remaining());
        serde_json::from_slice(&message).map(Some).map_err(|error| {
            Status::invalid_argument(format!(
                "a message cannot be read, as from a tierfeed of another version: {error}"
            ))
        })
    }
}
