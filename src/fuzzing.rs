//! Decoders inside this crate, for fuzz targets and hostile tests. Hidden, and no part of the API: they change without
//! notice.

pub use crate::task::{chunk_again, header_again};
