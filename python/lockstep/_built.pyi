TORCH: str
VERSION: str
