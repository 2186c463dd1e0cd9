// Texts of the page: English, Chinese.
export default {
};
