//! The instructions of this machine's processor.

/// Whether the processor has instructions for AES and for the multiplication that GCM needs.
///
/// Architectures other than x86 and AArch64 count as having none.
#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
pub fn has_aes() -> bool {
    is_x86_feature_detected!("aes") && is_x86_feature_detected!("pclmulqdq")
}

/// Whether the processor has instructions for AES. They include the multiplication that GCM needs.
#[cfg(target_arch = "aarch64")]
pub fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

/// Unknown for this architecture: none.
#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
pub fn has_aes() -> bool {
    false
}

#[cfg(test)]
mod tests {
    #[test]
    #[cfg(all(
        target_os = "linux",
        any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")
    ))]
    fn the_kernel_says_the_same_of_this_processor() {
        let known = std::fs::read_to_string("/proc/cpuinfo").expect("readable");
        let line = known
            .lines()
            .find(|line| line.starts_with("flags") || line.starts_with("Features"))
            .expect("a list of features");
        let has = |feature: &str| line.split_whitespace().any(|word| word == feature);
        let multiplies = has("pclmulqdq") || has("pmull");
        assert_eq!(super::has_aes(), has("aes") && multiplies);
    }
}
