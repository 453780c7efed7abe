//! The memory of foreign programs. This file has all of the crate's `unsafe` code.
#![allow(unsafe_code, reason = "the memory is that of programs in other languages")]

use super::failure::Failure;
use potluck::calls::EngineFault;
use potluck::{DType, Element, Error};
use std::borrow::Cow;
use std::slice::{from_raw_parts, from_raw_parts_mut};

/// Elements of a foreign program: where they are, how many, and of which type.
///
/// They need not be aligned. Elements that are not, and those of `bool`, whose bytes may be any in
/// other languages, are copied once more.
#[derive(Debug)]
pub struct Memory {
    start: *mut u8,
    count: usize,
    dtype: DType,
}

// SAFETY: by the contract of `Memory::new` the memory may be used from any thread.
unsafe impl Send for Memory {}

impl Memory {
    /// `count` elements from `start` on. Without elements, `start` may be null.
    ///
    /// # Errors
    /// [`Failure::Argument`] if `start` is null, and for more bytes than an address space has.
    ///
    /// # Safety
    /// Until the calls that are begun with it have ended or been dropped, the memory is allocated,
    /// and nobody else writes it. If it is written by the call, nobody else reads it either. All
    /// bytes are initialized.
    pub unsafe fn new(start: *mut u8, count: usize, dtype: DType) -> Result<Memory, Failure> {
        let bytes = count.checked_mul(dtype.bytes()).filter(|bytes| *bytes <= isize::MAX as usize);
        if bytes.is_none() {
            return Err(Failure::Argument(format!("{count} elements are more than fit in memory")));
        }
        if start.is_null() && count > 0 {
            return Err(Failure::Argument(format!("no buffer where {count} elements are")));
        }
        Ok(Memory { start, count, dtype })
    }

    /// The number of elements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Its elements, to be read.
    ///
    /// # Errors
    /// The lack of memory for a copy.
    pub(crate) fn input<T: Element>(self) -> Result<Cow<'static, [T]>, Failure> {
        match self.is_of::<T>() {
            // SAFETY: initialized, aligned, of a type whose every bit pattern is a value, and not
            // written meanwhile. The call that has the slice ends before the memory does.
            true => Ok(Cow::Borrowed(unsafe { from_raw_parts(self.start.cast(), self.count) })),
            false if self.count == 0 => Ok(Cow::Borrowed(&[])),
            false => self.copied().map(Cow::Owned),
        }
    }

    /// Its elements, to be read and written.
    ///
    /// # Errors
    /// The lack of memory for a copy.
    pub(crate) fn in_place<T: Element>(self) -> Result<InPlace<T>, Failure> {
        match self.is_of::<T>() {
            // SAFETY: as above, and used by nobody else meanwhile.
            true => Ok(InPlace::Lent(unsafe { from_raw_parts_mut(self.start.cast(), self.count) })),
            false => self.copied().map(|copy| InPlace::Copied(copy, self)),
        }
    }

    /// Writes all elements; there are as many.
    pub(crate) fn write<T: Element>(&self, elements: &[T]) {
        debug_assert!(elements.len() == self.count && self.dtype == T::DTYPE);
        let bytes = self.count.min(elements.len()) * self.dtype.bytes();
        // SAFETY: both have so many bytes, all of which are initialized. They may overlap, if the
        // program gave the same memory twice.
        unsafe { std::ptr::copy(elements.as_ptr().cast(), self.start, bytes) };
    }

    /// Whether the memory can be used as a slice of it.
    fn is_of<T: Element>(&self) -> bool {
        let is_aligned = self.start.cast::<T>().is_aligned();
        self.count > 0 && self.dtype == T::DTYPE && T::DTYPE != DType::Bool && is_aligned
    }

    /// As many elements, all of them zero.
    ///
    /// # Errors
    /// The lack of memory for them.
    pub(crate) fn zeroed<T: Element>(&self) -> Result<Vec<T>, Failure> {
        let mut elements = Vec::new();
        if elements.try_reserve_exact(self.count).is_err() {
            let bytes = (self.count * self.dtype.bytes()) as u64;
            return Err(Error::Engine(EngineFault::Memory { bytes }).into());
        }
        elements.resize(self.count, T::ZERO);
        Ok(elements)
    }

    fn copied<T: Element>(&self) -> Result<Vec<T>, Failure> {
        let bytes = self.count * self.dtype.bytes();
        let mut copy = self.zeroed::<T>()?;
        if self.dtype == DType::Bool {
            for (place, element) in copy.iter_mut().enumerate() {
                // SAFETY: the place is inside of the memory, and its byte is initialized.
                let is_true = unsafe { self.start.add(place).read() } != 0;
                // SAFETY: `T` is `bool`, because the type of the memory is.
                unsafe { std::ptr::from_mut(element).cast::<bool>().write(is_true) };
            }
        } else {
            // SAFETY: both have so many bytes, apart from each other, and every bit pattern is a
            // value of `T`.
            unsafe { copy.as_mut_ptr().cast::<u8>().copy_from(self.start, bytes) };
        }
        Ok(copy)
    }
}

/// The bytes of these elements.
pub(crate) fn bytes_of<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: an element has no padding, and a byte needs no alignment.
    unsafe { from_raw_parts(elements.as_ptr().cast(), size_of_val(elements)) }
}

/// The buffer of a call that reads and writes it.
pub(crate) enum InPlace<T: Element> {
    /// The program's memory itself.
    Lent(&'static mut [T]),
    /// A copy of it, and the place for the result.
    Copied(Vec<T>, Memory),
}

impl<T: Element> InPlace<T> {
    /// The elements.
    pub(crate) fn elements(&mut self) -> &mut [T] {
        match self {
            InPlace::Lent(elements) => elements,
            InPlace::Copied(elements, _) => elements,
        }
    }

    /// The call has succeeded: the program gets the result.
    pub(crate) fn keep(&self) {
        if let InPlace::Copied(elements, memory) = self {
            memory.write(elements);
        }
    }
}
